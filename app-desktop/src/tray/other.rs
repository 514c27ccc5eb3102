//! Systems that always have a tray.

pub(super) fn is_possible() -> bool {
    true
}

pub(super) fn is_shown() -> bool {
    true
}

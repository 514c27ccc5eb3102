//! What is on a virtual screen, by the X protocol: whether the app's window is shown, and closing it as window managers do.

use x11rb::connection::Connection as _;
use x11rb::protocol::xproto::{
    AtomEnum, BUTTON_PRESS_EVENT, BUTTON_RELEASE_EVENT, ChangeWindowAttributesAux, ClientMessageEvent,
    ConnectionExt as _, EventMask, ImageFormat, MOTION_NOTIFY_EVENT, MapState, Window,
};
use x11rb::protocol::xtest::ConnectionExt as _;
use x11rb::rust_connection::RustConnection;

/// The title of the app's window.
const TITLE: &[u8] = b"Tandem";
/// Toolkits make tiny windows for their own purposes, some with the app's title.
const LEAST_WIDTH: u16 = 50;

/// A connection to a screen.
pub(crate) struct Screen {
    connection: RustConnection,
    root: Window,
}

impl Screen {
    pub(crate) fn of(display: &str) -> Self {
        let (connection, number) = x11rb::connect(Some(display)).unwrap();
        let root = connection.setup().roots[number].root;
        Self { connection, root }
    }

    /// The app's window, if it is shown.
    pub(crate) fn window(&self) -> Option<Window> {
        let mut left = vec![self.root];
        while let Some(window) = left.pop() {
            // Windows may go while they are looked at.
            if self.is_the_apps(window) == Some(true) {
                return Some(window);
            }
            left.extend(
                self.connection
                    .query_tree(window)
                    .ok()
                    .and_then(|tree| tree.reply().ok())
                    .into_iter()
                    .flat_map(|tree| tree.children),
            );
        }
        None
    }

    fn is_the_apps(&self, window: Window) -> Option<bool> {
        let title =
            self.connection.get_property(false, window, AtomEnum::WM_NAME, AtomEnum::ANY, 0, 64).ok()?.reply().ok()?;
        let shown = self.connection.get_window_attributes(window).ok()?.reply().ok()?.map_state == MapState::VIEWABLE;
        let width = self.connection.get_geometry(window).ok()?.reply().ok()?.width;
        Some(title.value == TITLE && shown && width > LEAST_WIDTH)
    }

    /// Gives the bare screen a colour, as 0xRRGGBB.
    pub(crate) fn paint(&self, colour: u32) {
        let change = ChangeWindowAttributesAux::new().background_pixel(colour);
        self.connection.change_window_attributes(self.root, &change).unwrap();
        self.connection.clear_area(false, self.root, 0, 0, 0, 0).unwrap();
        self.connection.flush().unwrap();
    }

    /// Clicks with the right button.
    pub(crate) fn click(&self, x: i16, y: i16) {
        let send = |kind, detail| self.connection.xtest_fake_input(kind, detail, 0, self.root, x, y, 0).unwrap();
        send(MOTION_NOTIFY_EVENT, 0);
        send(BUTTON_PRESS_EVENT, 3);
        send(BUTTON_RELEASE_EVENT, 3);
        self.connection.flush().unwrap();
    }

    /// A part of what is shown, as PNG.
    pub(crate) fn picture(&self, x: i16, y: i16, width: u16, height: u16) -> Vec<u8> {
        let everything = u32::MAX;
        let image = self.connection.get_image(ImageFormat::Z_PIXMAP, self.root, x, y, width, height, everything);
        let image = image.unwrap().reply().unwrap();
        // Blue, green, red, and a byte without meaning.
        let points = image.data.chunks_exact(4).flat_map(|point| [point[2], point[1], point[0]]).collect::<Vec<_>>();
        let mut png = Vec::new();
        let mut encoder = png::Encoder::new(&mut png, width.into(), height.into());
        encoder.set_color(png::ColorType::Rgb);
        encoder.write_header().unwrap().write_image_data(&points).unwrap();
        png
    }

    /// Asks the app to close its window.
    pub(crate) fn close(&self, window: Window) {
        let atom = |name: &[u8]| self.connection.intern_atom(false, name).unwrap().reply().unwrap().atom;
        let message = [atom(b"WM_DELETE_WINDOW"), 0, 0, 0, 0];
        let event = ClientMessageEvent::new(32, window, atom(b"WM_PROTOCOLS"), message);
        self.connection.send_event(false, window, EventMask::NO_EVENT, event).unwrap();
        self.connection.flush().unwrap();
    }
}

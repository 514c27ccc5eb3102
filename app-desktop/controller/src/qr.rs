//! A pairing link as a QR code that another device's camera reads from the screen.

use qrcode::render::svg;
use qrcode::types::QrError as Cause;
use qrcode::{EcLevel, QrCode};

/// A text that no QR code can hold.
#[derive(Debug, thiserror::Error)]
#[error("the link does not fit a QR code")]
pub struct QrError(#[from] Cause);

/// The code as an SVG picture: black on white whatever the window's colours, with the quiet zone that cameras need.
///
/// # Errors
/// [`QrError`].
pub fn qr_svg(text: &str) -> Result<String, QrError> {
    let code = QrCode::with_error_correction_level(text, EcLevel::L)?;
    let mut picture = code.render::<svg::Color<'_>>();
    picture.min_dimensions(320, 320).dark_color(svg::Color("#000000")).light_color(svg::Color("#ffffff"));
    Ok(picture.build())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_becomes_a_picture_and_what_is_too_long_does_not() {
        let picture = qr_svg(&format!("tandem://relay.example:4433/?v=1&token={}", "a".repeat(600))).unwrap();
        assert!(picture.contains("<svg") && picture.contains("#000000"), "{picture}");
        assert!(qr_svg(&"a".repeat(5000)).is_err());
    }
}

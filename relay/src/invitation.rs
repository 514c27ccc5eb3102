//! How a pairing link reaches a person: as a line to copy and a QR code to photograph.

use qrcode::render::unicode::Dense1x2;
use qrcode::{EcLevel, QrCode};
use tandem_proto::pairing::PairingLink;

/// The link on a line of its own, then its QR code for a terminal with light text on a dark ground. It shows the token, so it
/// belongs on the operator's terminal and nowhere else.
pub fn invitation(link: &PairingLink) -> String {
    let text = link.expose();
    // The least correction: a screen loses no dots, and a smaller code fits more terminals.
    match QrCode::with_error_correction_level(&text, EcLevel::L) {
        Ok(code) => {
            let image = code.render::<Dense1x2>().dark_color(Dense1x2::Light).light_color(Dense1x2::Dark).build();
            format!("{text}\n\n{image}\n")
        }
        // A link of the greatest length fits no code of the densest kind; the line is what counts.
        Err(_) => format!("{text}\n"),
    }
}

#[cfg(test)]
mod tests {
    use tandem_proto::pairing::Secret;

    use super::*;

    #[test]
    fn a_usual_link_makes_a_code_that_fits_a_terminal() {
        let link = PairingLink {
            relays: vec!["relay.example.org:4433".parse().unwrap()],
            pins: vec![[7; 32]],
            token: Secret::new("a".repeat(240)),
            name: "phone".to_owned(),
        };
        let shown = invitation(&link);
        assert_eq!(shown.lines().next(), Some(link.expose().as_str()));
        let widest = shown.lines().skip(1).map(|line| line.chars().count()).max();
        assert!(widest.is_some_and(|columns| (40..=80).contains(&columns)), "{widest:?}");
    }
}

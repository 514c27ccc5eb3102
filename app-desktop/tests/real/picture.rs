//! Pictures of windows, and whether there is anything on them.

use std::collections::BTreeSet;
use std::io::Cursor;

/// A picture's points.
pub(crate) struct Picture {
    points: BTreeSet<[u8; 3]>,
}

impl Picture {
    /// Of a PNG.
    pub(crate) fn of(png: &[u8]) -> Self {
        let mut decoder = png::Decoder::new(Cursor::new(png));
        decoder.set_transformations(png::Transformations::normalize_to_color8());
        let mut reader = decoder.read_info().unwrap();
        let mut buffer = vec![0; reader.output_buffer_size().unwrap()];
        let info = reader.next_frame(&mut buffer).unwrap();
        let size = info.color_type.samples();
        let points = buffer[..info.buffer_size()].chunks_exact(size);
        Self { points: points.map(|point| std::array::from_fn(|at| point[at.min(size - 1)])).collect() }
    }

    /// How many colours there are; a blank page has one or two.
    pub(crate) fn colours(&self) -> usize {
        self.points.len()
    }
}

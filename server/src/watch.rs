//! Notices that files have changed.

use crate::model_files::Stamp;

/// Tells when files changed and then stayed as they are from one look to the next, so that a file being written is left
/// alone.
#[derive(Debug)]
pub struct Watch {
    loaded: Vec<Stamp>,
    last: Vec<Stamp>,
}

impl Watch {
    /// Files that were read as they are now.
    pub fn new(stamps: Vec<Stamp>) -> Self {
        Watch { loaded: stamps.clone(), last: stamps }
    }

    /// Takes a look. True once for every change.
    pub fn has_settled(&mut self, stamps: Vec<Stamp>) -> bool {
        let settled = stamps == self.last && stamps != self.loaded;
        if settled {
            self.loaded = stamps.clone();
        }
        self.last = stamps;
        settled
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_told_of_once_it_has_stopped_changing() {
        let stamp = |size| vec![("a.onnx".into(), size, 0, 1)];
        let mut watch = Watch::new(stamp(1));
        let seen = [1, 2, 3, 3, 3, 4, 4].map(|size| watch.has_settled(stamp(size)));
        assert_eq!(seen, [false, false, false, true, false, false, true]);
    }
}

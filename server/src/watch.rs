//! Notices that files have changed.

use crate::model_files::Stamp;

/// Tells when files changed and then stayed as they are from one look to the next, so that a file being written is left
/// alone.
#[derive(Debug)]
pub struct Watch {
    loaded: Vec<Stamp>,
    last: Vec<Stamp>,
    /// After a failure: looks until the next attempt, and how many they were at first.
    again: Option<(u32, u32)>,
}

/// Most looks between two attempts at files that could not be used.
const LONGEST: u32 = 64;

impl Watch {
    /// Files that were read as they are now.
    pub fn new(stamps: Vec<Stamp>) -> Self {
        Watch { loaded: stamps.clone(), last: stamps, again: None }
    }

    /// Takes a look. True once for every change, and again after a failure.
    pub fn has_settled(&mut self, stamps: Vec<Stamp>) -> bool {
        let settled = stamps == self.last && stamps != self.loaded;
        if settled {
            self.loaded = stamps.clone();
            self.again = None;
        }
        self.last = stamps;
        match &mut self.again {
            Some((left, _)) if *left > 0 => {
                *left -= 1;
                settled
            }
            Some(_) => true,
            None => settled,
        }
    }

    /// The files could not be used: whatever the reason, it may pass. The pause doubles from one failure to the next.
    pub fn failed(&mut self) {
        let pause = self.again.map_or(4, |(_, pause)| (pause * 2).min(LONGEST));
        self.again = Some((pause, pause));
    }

    /// The files could be used.
    pub fn succeeded(&mut self) {
        self.again = None;
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

    #[test]
    fn files_that_could_not_be_used_are_tried_again_ever_more_rarely() {
        let mut watch = Watch::new(Vec::new());
        let mut attempts = Vec::new();
        watch.failed();
        for look in 0..40 {
            if watch.has_settled(Vec::new()) {
                attempts.push(look);
                watch.failed();
            }
        }
        assert_eq!(attempts, [4, 13, 30]);
        watch.succeeded();
        assert!((0..200).all(|_| !watch.has_settled(Vec::new())));
    }
}

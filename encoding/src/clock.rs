//! Time controls, the clock before each move, and think times.

use std::str::FromStr;

use thiserror::Error;

/// A time control with one period, in seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TimeControl {
    /// Time each player starts with, in seconds.
    pub initial: f32,
    /// Time added after each move, in seconds.
    pub increment: f32,
}

/// A time control that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("`{0}` is not a time control of the form seconds+increment, such as 600+5")]
pub struct ParseTimeControlError(String);

/// Classes by estimated duration, as lichess draws them: initial + 40 increments, in seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TimeClass {
    /// Under 30 seconds.
    Ultrabullet,
    /// Under 3 minutes.
    Bullet,
    /// Under 8 minutes.
    Blitz,
    /// Under 25 minutes.
    Rapid,
    /// 25 minutes and longer.
    Classical,
}

impl TimeControl {
    /// Estimated duration of one player's game: initial + 40 increments, in seconds.
    pub fn estimated_duration(self) -> f32 {
        self.initial + 40.0 * self.increment
    }

    /// The class by estimated duration.
    pub fn class(self) -> TimeClass {
        match self.estimated_duration() {
            t if t < 30.0 => TimeClass::Ultrabullet,
            t if t < 180.0 => TimeClass::Bullet,
            t if t < 480.0 => TimeClass::Blitz,
            t if t < 1500.0 => TimeClass::Rapid,
            _ => TimeClass::Classical,
        }
    }
}

impl TimeClass {
    /// All classes, fastest first.
    pub const ALL: [TimeClass; 5] =
        [TimeClass::Ultrabullet, TimeClass::Bullet, TimeClass::Blitz, TimeClass::Rapid, TimeClass::Classical];

    /// Lower-case name, as in files and flags.
    pub fn name(self) -> &'static str {
        match self {
            TimeClass::Ultrabullet => "ultrabullet",
            TimeClass::Bullet => "bullet",
            TimeClass::Blitz => "blitz",
            TimeClass::Rapid => "rapid",
            TimeClass::Classical => "classical",
        }
    }
}

impl FromStr for TimeControl {
    type Err = ParseTimeControlError;

    /// Reads `600+5` or `600`, in seconds.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (initial, increment) = text.split_once('+').unwrap_or((text, "0"));
        let seconds = |part: &str| part.parse::<f32>().ok().filter(|s| s.is_finite() && *s >= 0.0);
        match (seconds(initial), seconds(increment)) {
            (Some(initial), Some(increment)) if initial + increment > 0.0 => Ok(TimeControl { initial, increment }),
            _ => Err(ParseTimeControlError(text.to_owned())),
        }
    }
}

/// The mover's clock before the move at `ply`, in seconds.
///
/// `after` holds what `[%clk]` says after each ply, so a move's own entry tells how long its player thought and
/// must not be read here: the mover's clock is that after their previous move, or the initial time on their first.
pub fn before(after: &[Option<f32>], time_control: Option<TimeControl>, ply: usize) -> Option<f32> {
    match ply.checked_sub(2) {
        Some(previous) => after.get(previous).copied().flatten(),
        None => time_control.map(|control| control.initial),
    }
}

/// The opponent's clock before the move at `ply`, in seconds: that after their move just played, or the initial time.
pub fn opponent_before(after: &[Option<f32>], time_control: Option<TimeControl>, ply: usize) -> Option<f32> {
    match ply.checked_sub(1) {
        Some(previous) => after.get(previous).copied().flatten(),
        None => time_control.map(|control| control.initial),
    }
}

/// Time spent on the move at `ply`: clock before - clock after + increment, in seconds, never below zero.
pub fn think_time(after: &[Option<f32>], time_control: Option<TimeControl>, ply: usize) -> Option<f32> {
    let control = time_control?;
    let left = after.get(ply).copied().flatten()?;
    Some((before(after, time_control, ply)? - left + control.increment).max(0.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    const RAPID: Option<TimeControl> = Some(TimeControl { initial: 600.0, increment: 5.0 });

    #[test]
    fn the_clock_of_a_move_is_never_read_before_it() {
        let after = [Some(600.0), Some(601.0), Some(580.0), Some(590.0)];
        assert_eq!(before(&after, RAPID, 0), Some(600.0));
        assert_eq!(before(&after, RAPID, 1), Some(600.0));
        assert_eq!(before(&after, RAPID, 2), Some(600.0));
        assert_eq!(before(&after, RAPID, 3), Some(601.0));
        assert_eq!(opponent_before(&after, RAPID, 0), Some(600.0));
        assert_eq!(opponent_before(&after, RAPID, 3), Some(580.0));
        assert_eq!(before(&after, None, 1), None);
        assert_eq!(before(&[None; 4], RAPID, 3), None);
    }

    #[test]
    fn think_time_counts_the_increment_and_stays_above_zero() {
        let after = [Some(600.0), Some(605.0), Some(580.0), Some(700.0)];
        assert_eq!(think_time(&after, RAPID, 0), Some(5.0));
        assert_eq!(think_time(&after, RAPID, 2), Some(25.0));
        assert_eq!(think_time(&after, RAPID, 3), Some(0.0));
        assert_eq!(think_time(&after, RAPID, 4), None);
    }

    #[test]
    fn time_controls_are_read_and_classed() {
        let class = |text: &str| text.parse::<TimeControl>().map(TimeControl::class).ok();
        assert_eq!(class("15"), Some(TimeClass::Ultrabullet));
        assert_eq!(class("60+0"), Some(TimeClass::Bullet));
        assert_eq!(class("180+2"), Some(TimeClass::Blitz));
        assert_eq!(class("600+0"), Some(TimeClass::Rapid));
        assert_eq!(class("900+15"), Some(TimeClass::Classical));
        for bad in ["", "-", "?", "0+0", "1/86400", "-5+3", "nan+1", "40/7200:3600"] {
            assert!(bad.parse::<TimeControl>().is_err(), "{bad}");
        }
    }
}

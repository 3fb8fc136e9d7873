//! Clock comments and time controls.
#![no_main]

use libfuzzer_sys::fuzz_target;
use zeitnot_encoding::TimeControl;

fuzz_target!(|text: &[u8]| {
    if let Some(seconds) = zeitnot_trainer::clk::find(text) {
        assert!(seconds.is_finite() && seconds >= 0.0);
    }
    if let Some(Ok(control)) = std::str::from_utf8(text).ok().map(str::parse::<TimeControl>) {
        assert!(control.initial >= 0.0 && control.increment >= 0.0);
        let _ = control.class();
    }
});

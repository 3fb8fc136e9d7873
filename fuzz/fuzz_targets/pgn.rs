//! PGN text with its tags, moves, comments and clocks.
#![no_main]

use libfuzzer_sys::fuzz_target;
use zeitnot_trainer::{filter::Filter, pgn::Games};

fuzz_target!(|text: &[u8]| {
    for game in Games::new(text, Filter { min_plies: 0, ..Filter::default() }) {
        if let Ok(Ok(game)) = game {
            assert_eq!(game.decisions().count(), game.moves.len(), "what was kept can be replayed");
        }
    }
});

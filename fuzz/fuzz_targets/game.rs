//! FEN, UCI and SAN: the first line is the initial position, the others are moves.
#![no_main]

use libfuzzer_sys::fuzz_target;
use zeitnot_encoding::{Batch, Conditions, Game, LegalMoves, encodings, vocabulary};

fuzz_target!(|text: &str| {
    let mut lines = text.lines();
    let fen = lines.next().unwrap_or_default();
    let moves = lines.collect::<Vec<_>>();
    let game = match Game::parse(fen, &moves) {
        Ok(game) => game,
        Err(error) => {
            assert!(error.to_string().starts_with(&error.field()));
            return;
        }
    };
    let situation = game.situation(Conditions::default());
    for encoding in encodings::ALL {
        assert_eq!(Batch::of(encoding, [&situation]).rows(), 1);
    }
    let legal = LegalMoves::of(game.position());
    let ranked = legal.rank(game.position(), &vec![0.0; vocabulary::SIZE]);
    if game.over().is_none() {
        let total = ranked.iter().map(|mv| mv.probability).sum::<f32>();
        assert!((total - 1.0).abs() < 1e-4);
    }
    for mv in &ranked {
        let longer = moves.iter().copied().chain([mv.uci.as_str()]).collect::<Vec<_>>();
        assert!(Game::parse(fen, &longer).is_ok(), "a legal move is read back");
    }
});

//! `lc0-112/1` against an independent encoder: 64 situations from real games and edge cases.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, missing_docs)]

use std::collections::BTreeMap;

use serde::Deserialize;
use shakmaty::uci::UciMove;
use zeitnot_encoding::{
    Batch, Conditions, Game, Lc0,
    lc0::{self, Policy},
    vocabulary,
};

#[derive(Deserialize)]
struct Golden {
    cases: Vec<Case>,
}

#[derive(Deserialize)]
struct Case {
    moves: Vec<String>,
    planes: BTreeMap<usize, [u8; 8]>,
    halfmove_clock: f32,
}

#[test]
fn all_planes_are_those_of_the_independent_encoder() {
    let golden: Golden = serde_json::from_str(include_str!("data/maia1-golden.json")).unwrap();
    assert_eq!(golden.cases.len(), 64);
    for (number, case) in golden.cases.iter().enumerate() {
        let situation = Game::parse("", &case.moves).unwrap().situation(Conditions::default());
        let batch = Batch::of(&Lc0, [&situation]);
        let mut expected = vec![0.0; lc0::PLANES * 64];
        for (plane, rows) in &case.planes {
            for (cell, value) in expected[plane * 64..(plane + 1) * 64].iter_mut().enumerate() {
                *value = f32::from(rows[cell / 8] >> (7 - cell % 8) & 1);
            }
        }
        expected[109 * 64..110 * 64].fill(case.halfmove_clock);
        for (plane, (ours, theirs)) in batch.floats("planes").chunks(64).zip(expected.chunks(64)).enumerate() {
            assert_eq!(ours, theirs, "plane {plane} of case {number}");
        }
    }
}

#[test]
fn every_move_a_piece_can_make_has_a_place_of_its_own() {
    for policy in [Policy::Planes, Policy::Moves] {
        let mut places = policy.places();
        places.sort_unstable();
        places.dedup();
        // 1,792 queen-like and knight moves and 66 promotions to other pieces than knights, which share the plain
        // move's place as it would be for a rook.
        assert_eq!(places.len(), 1858);
        assert!(places.iter().all(|&place| (0..policy.size() as i64).contains(&place)));
        assert_eq!(policy.castling().len(), 2);
    }
}

#[test]
fn the_moves_are_in_the_published_order() {
    let places = Policy::Moves.places();
    let place = |uci: &str| {
        let mv: UciMove = uci.parse().unwrap();
        let UciMove::Normal { from, to, promotion } = mv else { panic!("{uci}") };
        places[usize::from(vocabulary::index(from, to, promotion).unwrap())]
    };
    for (uci, expected) in [
        ("a1b1", 0),
        ("a1c1", 1),
        ("a1h1", 6),
        ("a1a2", 7),
        ("a1h8", 22),
        ("b1a1", 23),
        ("h8g8", 1791),
        ("a7a8q", 1792),
        ("a7a8r", 1793),
        ("a7a8b", 1794),
        ("a7b8q", 1795),
        ("b7a8q", 1798),
        ("h7h8b", 1857),
    ] {
        assert_eq!(place(uci), expected, "{uci}");
    }
    // A knight's promotion is the plain move of a rook on a7, the last of its way up the file.
    assert_eq!(place("a7a8n"), place("a7h7") + 1);
    let castling = Policy::Moves.castling();
    assert_eq!(castling.iter().map(|&(_, place)| place).collect::<Vec<_>>(), [place("e1h1"), place("e1a1")]);
}

#[test]
fn before_another_initial_position_that_one_is_repeated() {
    let planes = |fen: &str, moves: &[&str]| {
        let situation = Game::parse(fen, moves).unwrap().situation(Conditions::default());
        Batch::of(&Lc0, [&situation]).floats("planes").to_vec()
    };
    let position = |planes: &[f32], number: usize| planes[number * 13 * 64..(number * 13 + 12) * 64].to_vec();
    let fen = "4k3/8/8/8/8/8/4P3/4K3 w - - 0 1";
    let white = planes(fen, &["e4", "Kd7"]);
    for older in 3..8 {
        assert_eq!(position(&white, older), position(&white, 2));
    }
    assert_ne!(position(&white, 1), position(&white, 2));
    // Black sees the same positions from the other side.
    let black = planes(fen, &["e4"]);
    assert_eq!(position(&black, 7), position(&black, 1));
    assert_eq!(black[5 * 64 + 4], 1.0, "the own king on the mover's e1");
    let start = planes("", &["e4"]);
    assert!(position(&start, 2).iter().all(|&cell| cell == 0.0));
}

#[test]
fn forgotten_moves_take_their_positions_with_them() {
    let mut situation = Game::parse("", &["Nf3", "Nf6", "Ng1", "Ng8"]).unwrap().situation(Conditions::default());
    assert_eq!((situation.past.boards().count(), situation.past.repetitions()), (4, 1));
    situation.forget(2);
    assert_eq!((situation.past.boards().count(), situation.past.repetitions(), situation.history.len()), (2, 0, 2));
}

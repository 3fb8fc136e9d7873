//! `otter/1` against the reference implementation: 76 situations from real games and edge cases.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, missing_docs)]

use std::collections::BTreeMap;

use serde::Deserialize;
use shakmaty::{Chess, Move, Position, uci::UciMove};
use zeitnot_encoding::{Batch, Conditions, LegalMoves, Otter, Situation, board::BOARD, vocabulary};

#[derive(Deserialize)]
struct Golden {
    vocabulary_sha256: String,
    cases: Vec<Case>,
}

#[derive(Deserialize)]
struct Case {
    moves: Vec<String>,
    mover_elo: u16,
    opponent_elo: u16,
    time_control: String,
    clock_seconds: Option<f32>,
    board: BTreeMap<usize, [u8; 8]>,
    history: [i64; 20],
    mover_elo_bucket: i64,
    opponent_elo_bucket: i64,
    time_control_bucket: i64,
    clock: [f32; 2],
    legal: Vec<u16>,
}

#[test]
fn all_cases_encode_as_the_reference_does() {
    let golden: Golden = serde_json::from_str(include_str!("data/otter-golden.json")).unwrap();
    assert_eq!(golden.vocabulary_sha256, vocabulary::FINGERPRINT);
    assert_eq!(golden.cases.len(), 76);
    for (number, case) in golden.cases.iter().enumerate() {
        check(number, case);
    }
}

fn check(number: usize, case: &Case) {
    let mut situation = Situation::default();
    case.moves.iter().for_each(|uci| situation.play(as_written(&situation.position, uci)));
    situation.conditions = Conditions {
        mover_rating: Some(case.mover_elo),
        opponent_rating: Some(case.opponent_elo),
        time_control: case.time_control.parse().ok(),
        mover_clock: case.clock_seconds,
        ..Conditions::default()
    };
    let mut batch = Batch::new(&Otter, 1);
    batch.push(&situation);

    let mut board = vec![0.0; BOARD];
    for (plane, rows) in &case.board {
        for (row, bits) in rows.iter().enumerate() {
            for file in 0..8 {
                board[plane * 64 + row * 8 + file] = f32::from(bits >> (7 - file) & 1);
            }
        }
    }
    assert_eq!(batch.floats("board"), board, "board of case {number}");
    assert_eq!(batch.integers("history"), case.history, "history of case {number}");
    assert_eq!(batch.booleans("history_mask"), case.history.map(|token| token != 0), "mask of case {number}");
    assert_eq!(batch.integers("mover_elo"), [case.mover_elo_bucket], "mover of case {number}");
    assert_eq!(batch.integers("opponent_elo"), [case.opponent_elo_bucket], "opponent of case {number}");
    assert_eq!(batch.integers("time_control"), [case.time_control_bucket], "time control of case {number}");
    for (ours, theirs) in batch.floats("clock").iter().zip(case.clock) {
        assert!((ours - theirs).abs() < 1e-6, "clock of case {number}: {ours} {theirs}");
    }
    let mut legal = LegalMoves::of(&situation.position).indices().to_vec();
    legal.sort_unstable();
    assert_eq!(legal, case.legal, "legal moves of case {number}");
}

/// One case of the data (73) contains a pawn's capture of an empty square, h6g7, which the reference plays as written.
fn as_written(position: &Chess, text: &str) -> Move {
    let uci: UciMove = text.parse().unwrap();
    let UciMove::Normal { from, to, promotion } = uci else { panic!("{text}") };
    let role = position.board().role_at(from).unwrap();
    uci.to_move(position).unwrap_or(Move::Normal { role, from, capture: None, to, promotion })
}

//! `maia3/1` against the reference package: 26 situations, 24 of them from real games.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, missing_docs)]

use serde::Deserialize;
use zeitnot_encoding::{Batch, Conditions, Game, LegalMoves, Maia3, Situation, maia3};

#[derive(Deserialize)]
struct Golden {
    cases: Vec<Case>,
}

#[derive(Deserialize)]
struct Case {
    moves: Vec<String>,
    mover_elo: u16,
    opponent_elo: u16,
    tokens_set: Vec<[usize; 2]>,
    legal: Vec<String>,
    index: Vec<i64>,
}

fn cases() -> Vec<Case> {
    let golden: Golden = serde_json::from_str(include_str!("data/maia3-golden.json")).unwrap();
    assert_eq!(golden.cases.len(), 26);
    golden.cases
}

#[test]
fn tokens_and_ratings_are_those_of_the_reference() {
    for (number, case) in cases().iter().enumerate() {
        let conditions = Conditions {
            mover_rating: Some(case.mover_elo),
            opponent_rating: Some(case.opponent_elo),
            ..Conditions::default()
        };
        let situation = Game::parse("", &case.moves).unwrap().situation(conditions);
        let batch = Batch::of(&Maia3, [&situation]);
        let set =
            |(cell, value): (usize, &f32)| (*value == 1.0).then_some([cell / maia3::CHANNELS, cell % maia3::CHANNELS]);
        let ours = batch.floats("tokens").iter().enumerate().filter_map(set).collect::<Vec<_>>();
        let mut theirs = case.tokens_set.clone();
        theirs.sort_unstable();
        let difference =
            |a: &[[usize; 2]], b: &[[usize; 2]]| a.iter().filter(|cell| !b.contains(cell)).copied().collect::<Vec<_>>();
        assert_eq!((difference(&ours, &theirs), difference(&theirs, &ours)), (vec![], vec![]), "case {number}");
        assert_eq!(batch.floats("mover_elo"), [f32::from(case.mover_elo)]);
        assert_eq!(batch.floats("opponent_elo"), [f32::from(case.opponent_elo)]);
    }
}

#[test]
fn legal_moves_have_the_places_of_the_reference() {
    let places = maia3::policy();
    for (number, case) in cases().iter().enumerate() {
        let game = Game::parse("", &case.moves).unwrap();
        let legal = LegalMoves::of(game.position());
        assert_eq!(legal.len(), case.legal.len());
        for (uci, &expected) in case.legal.iter().zip(&case.index) {
            let mut after = case.moves.clone();
            after.push(uci.clone());
            Game::parse("", &after).unwrap();
            let mv = legal.moves().iter().position(|&mv| named(mv) == *uci);
            let index = legal.indices()[mv.unwrap_or_else(|| panic!("{uci} of case {number}"))];
            assert_eq!(places[usize::from(index)], expected, "{uci} of case {number}");
        }
    }
}

/// The move in UCI; castling is the king's two-square move.
fn named(mv: shakmaty::Move) -> String {
    shakmaty::uci::UciMove::from_standard(mv).to_string()
}

#[test]
fn promotions_and_moves_have_places_of_their_own() {
    let mut places = maia3::policy();
    places.sort_unstable();
    places.dedup();
    // All pairs of different squares, 88 promotions to rank 8, and the place of those that no mover makes.
    assert_eq!(places.len(), 64 * 63 + 88 + 1);
    assert!(places.iter().all(|&place| (0..maia3::POLICY as i64).contains(&place)));
}

#[test]
fn unknown_ratings_and_forgotten_moves_are_told() {
    use zeitnot_encoding::Encoding;
    let mut situation = Game::parse("", &["e4", "e5", "Nf3"]).unwrap().situation(Conditions {
        opponent_rating: Some(1700),
        mover_clock: Some(3.0),
        ..Conditions::default()
    });
    let told = Maia3.told(&situation);
    assert_eq!((told.history, told.conditions.opponent_rating, told.conditions.mover_clock), (3, Some(1700), None));
    assert_eq!(told.notes, ["mover.rating: assumed to be the opponent's", "clock: not used by this encoding"]);
    assert_eq!(Batch::of(&Maia3, [&situation]).floats("mover_elo"), [1700.0]);
    // What is not known of the past is as if the game had begun later.
    situation.forget(0);
    let same = Situation { past: Default::default(), ..situation.clone() };
    assert_eq!(Batch::of(&Maia3, [&situation]), Batch::of(&Maia3, [&same]));
    let tokens = Batch::of(&Maia3, [&situation]).floats("tokens").to_vec();
    let newest = |token: &[f32]| token[maia3::CHANNELS - 12..].to_vec();
    for token in tokens.chunks(maia3::CHANNELS) {
        assert!(token.chunks(12).all(|position| position == newest(token)));
    }
}

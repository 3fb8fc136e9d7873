//! Properties of the encoding over random legal positions.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, missing_docs)]

use proptest::prelude::*;
use shakmaty::{Chess, Color, EnPassantMode, FromSetup, Move, Position, fen::Fen};
use zeitnot_encoding::{
    Batch, Conditions, Encoding, Game, LegalMoves, Otter, Situation, TimeControl, Zeitnot, batch::Values, board::BOARD,
    vocabulary,
};

/// A random game: at each ply the choice picks one of the legal moves.
fn play(choices: &[u16]) -> Situation {
    let mut situation = Situation::default();
    for &choice in choices {
        let moves = situation.position.legal_moves();
        if moves.is_empty() {
            break;
        }
        situation.play(moves[usize::from(choice) % moves.len()]);
    }
    situation
}

/// The same position with colours swapped and the board mirrored.
fn mirrored(position: &Chess) -> Chess {
    let setup = position.to_setup(EnPassantMode::Legal).into_mirrored();
    Chess::from_setup(setup, shakmaty::CastlingMode::Standard).unwrap()
}

/// The situation in the encodings that see one position, not those before it.
fn encoded(situation: &Situation) -> [Batch; 2] {
    let encodings: [&'static dyn Encoding; 2] = [&Zeitnot, &Otter];
    encodings.map(|encoding| Batch::of(encoding, [situation]))
}

fn choices() -> impl Strategy<Value = Vec<u16>> {
    prop::collection::vec(any::<u16>(), 0..160)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn every_legal_move_has_exactly_one_index_and_comes_back(choices in choices()) {
        let position = play(&choices).position;
        let legal = LegalMoves::of(&position);
        prop_assert_eq!(legal.len(), position.legal_moves().len());
        let mut indices = legal.indices().to_vec();
        indices.sort_unstable();
        indices.dedup();
        prop_assert_eq!(indices.len(), legal.len());
        for &index in legal.indices() {
            let entry = vocabulary::entries()[usize::from(index)];
            let board = if position.turn() == Color::Black { Some(()) } else { None };
            let flip = |square: shakmaty::Square| board.map_or(square, |()| square.flip_vertical());
            let uci = shakmaty::uci::UciMove::Normal { from: flip(entry.from), to: flip(entry.to), promotion: entry.promotion };
            let mv: Move = uci.to_move(&position).unwrap();
            prop_assert_eq!(vocabulary::index_of(mv, position.turn()), Some(index));
        }
    }

    #[test]
    fn probabilities_sum_to_one(choices in choices(), logits in prop::collection::vec(-60.0f32..60.0, vocabulary::SIZE)) {
        let position = play(&choices).position;
        let ranked = LegalMoves::of(&position).rank(&position, &logits);
        if !ranked.is_empty() {
            let total = ranked.iter().map(|mv| f64::from(mv.probability)).sum::<f64>();
            prop_assert!((total - 1.0).abs() < 1e-5, "{}", total);
            prop_assert!(ranked.windows(2).all(|pair| pair[0].probability >= pair[1].probability));
        }
    }

    #[test]
    fn a_mirrored_position_encodes_the_same_but_for_the_side_plane(choices in choices(), rating in 0u16..3500, clock in 0.0f32..900.0) {
        let conditions = Conditions {
            mover_rating: Some(rating),
            opponent_rating: None,
            time_control: Some(TimeControl { initial: 600.0, increment: 5.0 }),
            mover_clock: Some(clock),
            ..Conditions::default()
        };
        let situation = Situation { conditions, ..play(&choices) };
        let mirror = Situation { position: mirrored(&situation.position), ..situation.clone() };
        let side = 17 * 64..BOARD;
        for (ours, theirs) in encoded(&situation).iter().zip(encoded(&mirror)) {
            for ((input, ours), (_, theirs)) in ours.tensors().zip(theirs.tensors()) {
                if let (Values::Float(ours), Values::Float(theirs), "board") = (ours, theirs, input.name) {
                    prop_assert_eq!(&ours[..side.start], &theirs[..side.start]);
                    prop_assert_ne!(&ours[side.clone()], &theirs[side.clone()]);
                } else {
                    prop_assert_eq!(ours, theirs, "{} of {}", input.name, situation.position.turn());
                }
            }
        }
        let indices = |position: &Chess| {
            let mut indices = LegalMoves::of(position).indices().to_vec();
            indices.sort_unstable();
            indices
        };
        prop_assert_eq!(indices(&situation.position), indices(&mirror.position));
    }

    #[test]
    fn a_game_read_from_uci_and_from_san_is_the_same(choices in choices()) {
        let mut situation = Situation::default();
        let (mut uci, mut san) = (Vec::new(), Vec::new());
        for &choice in &choices {
            let moves = situation.position.legal_moves();
            if moves.is_empty() {
                break;
            }
            let mv = moves[usize::from(choice) % moves.len()];
            uci.push(shakmaty::uci::UciMove::from_standard(mv).to_string());
            san.push(shakmaty::san::SanPlus::from_move(situation.position.clone(), mv).to_string());
            situation.play(mv);
        }
        let (uci, san) = (Game::parse("", &uci).unwrap(), Game::parse("", &san).unwrap());
        prop_assert_eq!(uci.position(), &situation.position);
        prop_assert_eq!(encoded(&uci.situation(Conditions::default())), encoded(&san.situation(Conditions::default())));
    }

    #[test]
    fn any_text_is_read_or_refused_without_a_panic(fen in "\\PC{0,90}", moves in prop::collection::vec("\\PC{0,8}", 0..4)) {
        let _ = Game::parse(&fen, &moves);
    }

    #[test]
    fn a_fen_of_any_reached_position_is_read_back(choices in choices()) {
        let position = play(&choices).position;
        let fen = Fen::from_position(&position, EnPassantMode::Legal).to_string();
        let game = Game::parse::<&str>(&fen, &[]).unwrap();
        prop_assert_eq!(game.position(), &position);
    }
}

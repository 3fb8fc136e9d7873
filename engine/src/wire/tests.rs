use super::*;

const START: &str = "rnbqkbnr/pppppppp/8/8/8/8/PPPPPPPP/RNBQKBNR w KQkq - 0 1";
const CASTLING: &str = "r3k2r/8/8/8/8/8/8/R3K2R w KQkq - 0 1";

fn caps() -> Caps {
    Caps { depth: 20, nodes: 1000, movetime: Duration::from_secs(2) }
}

fn request(fen: &str, candidates: &[&str]) -> v1::EvaluateCandidatesRequest {
    v1::EvaluateCandidatesRequest {
        fen: fen.to_owned(),
        candidates: candidates.iter().map(ToString::to_string).collect(),
        limits: Some(v1::Limits { depth: 4, ..v1::Limits::default() }),
    }
}

fn complaints(request: v1::EvaluateCandidatesRequest) -> Vec<String> {
    match Question::read(request, &caps()) {
        Err(EngineError::Invalid(violations)) => {
            violations.into_iter().map(|violation| format!("{}: {}", violation.field, violation.problem)).collect()
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_key_does_not_depend_on_the_order_of_the_candidates() {
    let read = |candidates| Question::read(request(START, candidates), &caps()).unwrap();
    let (one, other) = (read(&["g1f3", "a2a3", "e2e4"]), read(&["e2e4", "g1f3", "a2a3"]));
    assert_eq!(one.key, other.key);
    assert_eq!(one.key.candidates, ["a2a3", "e2e4", "g1f3"]);
    assert_eq!(one.asked, ["g1f3", "a2a3", "e2e4"]);
    assert_eq!(one.search().candidates, other.search().candidates);
    assert_ne!(one.key, read(&["g1f3", "a2a3"]).key);
}

#[test]
fn every_bad_field_is_named() {
    let found = complaints(v1::EvaluateCandidatesRequest {
        limits: Some(v1::Limits {
            depth: 21,
            nodes: 1001,
            movetime: Some(prost_types::Duration { seconds: 2, nanos: 1 }),
        }),
        ..request(START, &["e2e4", "e2e5", "banana", "e2e4", "0000"])
    });
    assert_eq!(
        found,
        [
            "limits.depth: 21 is more than 20",
            "limits.nodes: 1001 is more than 1000",
            "limits.movetime: is more than 2000 ms",
            "candidates[1]: e2e5 is not legal",
            "candidates[2]: `banana` is no move in UCI",
            "candidates[3]: e2e4 is there twice",
            "candidates[4]: 0000 is not legal",
        ]
    );
}

#[test]
fn castling_is_the_kings_two_squares() {
    assert!(Question::read(request(CASTLING, &["e1g1", "e1c1"]), &caps()).is_ok());
    assert_eq!(complaints(request(CASTLING, &["e1h1"])), ["candidates[0]: e1h1 is written e1g1"]);
}

#[test]
fn positions_that_cannot_be_are_refused() {
    for bad in [
        "",
        "banana",
        "8/8/8/8/8/8/8/8 w - - 0 1",
        "4k3/8/8/8/8/8/4R3/4K3 w - - 0 1",
        "qqqqkqqq/qqqqqqqq/qqqqqqqq/8/8/8/8/4K3 b - - 0 1",
        &" ".repeat(4096),
    ] {
        let found = complaints(request(bad, &["e1e2"]));
        assert!(found.len() == 1 && found[0].starts_with("fen: "), "{bad}: {found:?}");
    }
}

#[test]
fn there_are_candidates_but_not_too_many() {
    assert_eq!(complaints(request(START, &[])), ["candidates: there are 0, not 1 to 218"]);
    assert_eq!(complaints(request(START, &["e2e4"; 219])), ["candidates: there are 219, not 1 to 218"]);
    let mate = "7k/5KQ1/8/8/8/8/8/8 b - - 0 1";
    assert_eq!(complaints(request(mate, &["h8h7"])), ["candidates[0]: h8h7 is not legal"]);
}

#[test]
fn something_must_end_the_search() {
    let with = |limits| v1::EvaluateCandidatesRequest { limits, ..request(START, &["e2e4"]) };
    assert_eq!(complaints(with(None)), ["limits: has neither depth, nodes nor movetime"]);
    assert_eq!(complaints(with(Some(v1::Limits::default()))), ["limits: has neither depth, nodes nor movetime"]);
    for (seconds, nanos) in [(0, 0), (-1, 0), (0, -1), (0, 1_000_000_000), (i64::MIN, i32::MIN)] {
        let movetime = Some(prost_types::Duration { seconds, nanos });
        let found = complaints(with(Some(v1::Limits { movetime, ..v1::Limits::default() })));
        assert!(found.len() == 1 && found[0].starts_with("limits.movetime: "), "{found:?}");
    }
}

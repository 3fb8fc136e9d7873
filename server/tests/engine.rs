//! Re-ranking through the real sidecar: with real engines, where they are installed, conventions of moves, sides and scores
//! hold end to end; with the engine that misbehaves on demand, no prediction fails.
#![allow(missing_docs, clippy::unwrap_used, clippy::indexing_slicing, clippy::panic)]

mod common;

use std::{
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use common::{
    Server,
    asking::{GAME, ask, server_with, until},
    strong,
};
use tokio::sync::oneshot;
use tonic::Request;
use zeitnot_engine::config::Config;
use zeitnot_proto::v1::{
    Evidence, Position, PredictRequest, PredictResponse, Rerank, RerankMode, RerankStatus, evidence::Score,
};

/// The engine by this name that `scripts/setup.sh` installs.
fn engine(name: &str) -> Option<PathBuf> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../.native/bin").join(name);
    if !path.exists() {
        eprintln!("SKIPPED: {name} is not installed");
    }
    path.exists().then_some(path)
}

/// The engine that misbehaves on demand, built where it is absent.
fn fake_engine() -> PathBuf {
    let path = Path::new(common::BINARY).with_file_name("zeitnot-fake-engine");
    if !path.exists() {
        let build = ["build", "--release", "-p", "zeitnot-uci", "--bin", "zeitnot-fake-engine"];
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        assert!(Command::new(cargo).args(build).status().unwrap().success() && path.exists());
    }
    path
}

/// A sidecar in this process, and a server that asks it. The sidecar ends with the sender.
async fn server(config: Config) -> (Server, oneshot::Sender<()>) {
    let any = "127.0.0.1:0".parse().unwrap();
    let config = Config { listen: any, admin_listen: any, processes: 1, drain_delay_ms: 0, ..config };
    let listeners = zeitnot_engine::server::Listeners::bind(&config).await.unwrap();
    let flag = format!("--engines=http://{}", listeners.grpc_address().unwrap());
    let (stop, stopped) = oneshot::channel();
    tokio::spawn(zeitnot_engine::server::run(config, listeners, async move { drop(stopped.await) }));
    let server = server_with(&flag).await;
    until(&server, RerankStatus::Applied).await;
    (server, stop)
}

async fn ask_at(server: &Server, fen: &str) -> PredictResponse {
    let movetime = Some(prost_types::Duration { seconds: 8, nanos: 0 });
    let rerank = Some(Rerank { mode: RerankMode::Required.into(), depth: 6, nodes: 0, movetime });
    let position = Some(Position { initial_fen: fen.to_owned(), moves: vec![] });
    let answer = ask(server, PredictRequest { rerank, position, ..strong(&[]) }).await;
    assert_eq!(answer.rerank_status(), RerankStatus::Applied, "{fen}");
    answer
}

fn evidence(answer: &PredictResponse, uci: &str) -> Evidence {
    answer.moves.iter().find(|mv| mv.uci == uci).unwrap().evidence.unwrap()
}

#[tokio::test]
async fn engines_and_server_mean_the_same_by_moves_sides_and_scores() {
    for name in ["stockfish", "ethereal"] {
        let Some(path) = engine(name) else { continue };
        let (server, _sidecar) = server(Config { program: Some(path), ..Config::default() }).await;
        let mate = ask_at(&server, "6k1/5ppp/8/8/8/8/5PPP/R5K1 w - - 0 1").await;
        assert_eq!(evidence(&mate, "a1a8").score, Some(Score::Mate(1)), "{name}");
        assert_eq!((evidence(&mate, "a1a8").rank, evidence(&mate, "a1a8").loss), (1, 0));
        assert_eq!(mate.insight.unwrap().best_move.unwrap().san, "Ra8#");
        let black = ask_at(&server, "3qk3/8/8/8/8/8/8/4K3 b - - 0 1").await;
        let best = black.moves.iter().filter_map(|mv| mv.evidence).find(|evidence| evidence.rank == 1).unwrap();
        let won = match best.score.unwrap() {
            Score::Centipawns(cp) => cp > 300,
            Score::Mate(moves) => moves > 0,
        };
        assert!(won, "{name}: Black is a queen up, and to move: {best:?}");
        let promotion = ask_at(&server, "8/P6k/8/8/8/8/8/K7 w - - 0 1").await;
        let (queen, knight) = (evidence(&promotion, "a7a8q"), evidence(&promotion, "a7a8n"));
        assert!(queen.rank < knight.rank && knight.loss > 300, "{name}: {queen:?}, {knight:?}");
        let castling = ask_at(&server, "4k3/8/8/8/8/8/3PPP2/4K2R w K - 0 1").await;
        assert!(evidence(&castling, "e1g1").depth > 0, "{name}: castling is the king's two-square move");
        let passing = ask_at(&server, "4k3/8/8/3pP3/8/8/8/4K3 w - d6 0 2").await;
        assert!(evidence(&passing, "e5d6").depth > 0, "{name}: the right to capture in passing is told");
    }
}

#[tokio::test]
async fn no_fault_of_an_engine_behind_a_sidecar_fails_a_prediction() {
    let folder = tempfile::tempdir().unwrap();
    let mode = |name: &str| {
        std::fs::write(folder.path().join("unfinished"), name).unwrap();
        std::fs::rename(folder.path().join("unfinished"), folder.path().join("mode")).unwrap();
    };
    mode("normal");
    let args = vec!["--mode-file".to_owned(), folder.path().join("mode").to_str().unwrap().to_owned()];
    let program = Some(fake_engine());
    let config = Config { program, args, stop_limit_ms: 200, cache_entries: 0, ..Config::default() };
    let (server, sidecar) = server(config).await;
    let faults = [
        "hang-search",
        "hang-late",
        "crash-search",
        "flood",
        "endless-line",
        "illegal-pv",
        "wrong-side",
        "illegal-best",
        "nonsense-score",
        "huge-score",
        "ignores-searchmoves",
        "single-line",
        "slow",
        "partial",
        "crash-start",
    ];
    for fault in faults {
        mode(fault);
        for _ in 0..3 {
            let mut asked = Request::new(strong(&GAME));
            asked.set_timeout(Duration::from_secs(4));
            let answer = server.predictions().predict(asked).await.unwrap().into_inner();
            let known = [RerankStatus::Applied, RerankStatus::SkippedEngineUnavailable];
            assert!(known.contains(&answer.rerank_status()), "{fault}: {:?}", answer.rerank_status());
            assert_eq!(answer.insight.is_some(), answer.rerank_status() == RerankStatus::Applied, "{fault}");
        }
        mode("normal");
        until(&server, RerankStatus::Applied).await;
    }
    drop(sidecar);
    until(&server, RerankStatus::SkippedEngineUnavailable).await;
}

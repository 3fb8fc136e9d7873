//! `zeitnot-load`: how a Zeitnot server does under a load that does not wait for it.

use std::{fs, path::PathBuf, sync::Arc, time::Duration};

use anyhow::{Context, Result};
use clap::Parser;
use serde_json::json;
use zeitnot_load::{
    games, generate,
    grpc::{Connect, Grpc},
    picture,
};

/// Sends positions of real games to a Zeitnot server at a rate, whether it keeps up or not, and says how it did.
#[derive(Parser, Debug)]
#[command(version, about)]
struct Options {
    /// PGN files (.pgn or .pgn.zst) whose positions are asked for
    #[arg(required = true)]
    games: Vec<PathBuf>,
    /// The server; https:// for TLS
    #[arg(long, default_value = "http://localhost:50051")]
    address: String,
    /// Calls a second; several rates, separated by commas, are tried one after the other
    #[arg(long, value_delimiter = ',', default_value = "100")]
    rate: Vec<f64>,
    /// How long each rate is kept up, in seconds
    #[arg(long, default_value_t = 10.0)]
    seconds: f64,
    /// Deadline of each call, in milliseconds
    #[arg(long, default_value_t = 1_000)]
    deadline_ms: u64,
    /// Connections to spread the calls over
    #[arg(long, default_value_t = 4)]
    connections: usize,
    /// Most games to take from each file
    #[arg(long, default_value_t = 1_000)]
    limit: usize,
    /// Chooses the moments of arrival; the same seed gives the same
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// API key
    #[arg(long, env = "ZEITNOT_KEY", hide_env_values = true)]
    key: Option<String>,
    /// Authority (PEM) that signed the server's certificate
    #[arg(long)]
    tls_ca: Option<PathBuf>,
    /// Where to write the figures as JSON
    #[arg(long)]
    json: Option<PathBuf>,
    /// Where to draw the latencies as SVG
    #[arg(long)]
    picture: Option<PathBuf>,
}

#[tokio::main]
async fn main() -> Result<()> {
    let options = Options::parse();
    let mut requests = Vec::new();
    for path in &options.games {
        requests.extend(games::read(path, options.limit)?.into_iter().flatten());
    }
    println!("{} positions", requests.len());
    let connect = Connect {
        address: options.address.clone(),
        connections: options.connections,
        deadline: Duration::from_millis(options.deadline_ms),
        key: options.key.clone(),
        tls_ca: options.tls_ca.clone(),
    };
    let target = Arc::new(Grpc::connect(&connect, requests).await?);
    let (mut figures, mut lines, mut first) = (Vec::new(), Vec::new(), 0);
    println!("     due/s  answered/s  refused  late  failed    p50 ms    p99 ms  p99.9 ms");
    for &rate in &options.rate {
        let report = generate::open_loop(&target, rate, options.seconds, options.seed, first).await?;
        let step = report.figures();
        first += step.sent as usize;
        let (failed, latency) = (step.failures.values().sum::<u64>(), step.latency_ms);
        println!(
            "{rate:10.0}  {:10.1}  {:7}  {:4}  {failed:6}  {:8.2}  {:8.2}  {:8.2}",
            step.answered_per_second, step.refused, step.late, latency.p50, latency.p99, latency.p999
        );
        step.failures.iter().for_each(|(why, times)| println!("            {times} times: {why}"));
        lines.push((format!("{rate} calls a second"), report.curve()));
        figures.push(step);
    }
    if let Some(path) = &options.json {
        let text = json!({ "address": options.address, "deadline_ms": options.deadline_ms, "loads": figures });
        fs::write(path, format!("{text:#}\n")).with_context(|| path.display().to_string())?;
    }
    if let Some(path) = &options.picture {
        picture::draw(path, &format!("Latency of {}", options.address), &lines)?;
    }
    Ok(())
}

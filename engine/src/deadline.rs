//! Deadlines of requests.
//!
//! tonic answers an elapsed `grpc-timeout` with CANCELLED, so the sidecar keeps the deadline itself, a little earlier.

use std::time::Duration;

use tokio::time::Instant;
use tonic::metadata::MetadataMap;

/// Share of a client's time kept for the way back, so that what was scored arrives before the client, or tonic, gives up.
const WAY_BACK: f64 = 0.1;
/// Least and most time kept for the way back.
const BOUNDS: (Duration, Duration) = (Duration::from_millis(5), Duration::from_millis(25));

/// When a request must be done; an extension of every request.
#[derive(Clone, Copy, Debug)]
pub struct Deadline {
    /// When the search stops.
    pub search: Instant,
    /// When the answer must be there: later, since engines take a moment to stop.
    pub answer: Instant,
}

impl Deadline {
    /// The client's `grpc-timeout` or the sidecar's limit, whichever is earlier. Counts from now, which should be when the
    /// headers arrive.
    pub fn of(metadata: &MetadataMap, limit: Duration) -> Self {
        let client = metadata.get("grpc-timeout").and_then(|value| value.to_str().ok()).and_then(parse);
        let allowed = client.map_or(limit, |timeout| timeout.min(limit));
        let way_back = allowed.mul_f64(WAY_BACK).clamp(BOUNDS.0, BOUNDS.1);
        let now = Instant::now();
        Deadline { search: now + allowed.saturating_sub(way_back), answer: now + allowed.saturating_sub(way_back / 2) }
    }
}

/// Reads `grpc-timeout`: up to eight digits and a unit of H, M, S, m, u or n.
fn parse(text: &str) -> Option<Duration> {
    let unit = text.chars().last()?;
    let digits = text.get(..text.len() - unit.len_utf8())?;
    if digits.is_empty() || digits.len() > 8 || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let value = digits.parse::<u64>().ok()?;
    match unit {
        'H' => Some(Duration::from_secs(value * 3600)),
        'M' => Some(Duration::from_secs(value * 60)),
        'S' => Some(Duration::from_secs(value)),
        'm' => Some(Duration::from_millis(value)),
        'u' => Some(Duration::from_micros(value)),
        'n' => Some(Duration::from_nanos(value)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timeouts_are_read_in_every_unit_and_nothing_else_is() {
        assert_eq!(parse("2H"), Some(Duration::from_secs(7200)));
        assert_eq!(parse("3M"), Some(Duration::from_secs(180)));
        assert_eq!(parse("99999999S"), Some(Duration::from_secs(99_999_999)));
        assert_eq!(parse("250m"), Some(Duration::from_millis(250)));
        assert_eq!(parse("7u"), Some(Duration::from_micros(7)));
        assert_eq!(parse("0n"), Some(Duration::ZERO));
        for text in ["", "m", "-1m", "1", "1x", "123456789S", "1.5S", "1 S"] {
            assert_eq!(parse(text), None, "{text}");
        }
    }

    #[test]
    fn a_tenth_is_kept_for_the_way_back_within_bounds() {
        let limit = Duration::from_secs(30);
        let times = |timeout: Option<&'static str>| {
            let mut metadata = MetadataMap::new();
            if let Some(timeout) = timeout {
                metadata.insert("grpc-timeout", timeout.parse().unwrap());
            }
            let deadline = Deadline::of(&metadata, limit);
            let rounded = |at: Instant| {
                let left = at.saturating_duration_since(Instant::now());
                (left.as_secs_f64() * 1e3).ceil()
            };
            (rounded(deadline.search), rounded(deadline.answer))
        };
        assert_eq!(times(Some("100m")), (90.0, 95.0));
        assert_eq!(times(Some("20m")), (15.0, 18.0));
        assert_eq!(times(Some("2S")), (1975.0, 1988.0));
        assert_eq!(times(Some("4m")), (0.0, 2.0));
        assert_eq!(times(Some("1H")), (29_975.0, 29_988.0));
        assert_eq!(times(None), (29_975.0, 29_988.0));
    }
}

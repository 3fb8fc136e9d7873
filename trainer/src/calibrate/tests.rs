use super::*;

/// Moves played with probability 1/4, 1/4 and 1/2, claimed too surely by doubled logits.
fn overconfident() -> Vec<Sample> {
    let logits = [0.25f32, 0.25, 0.5].map(|p| 2.0 * p.ln()).to_vec();
    let sample = |number: usize| {
        let played = [0, 1, 2, 2][number / 2 % 4];
        Sample { test: number % 2 == 1, logits: logits.clone(), played, clock: Some(2), think: None }
    };
    (0..800).map(sample).collect()
}

#[test]
fn the_temperature_undoes_doubled_logits() {
    let calibration = measure("tiny", &overconfident());
    assert!((calibration.temperature - 2.0).abs() < 0.02, "{}", calibration.temperature);
    assert!(calibration.after.nll < calibration.before.nll);
    assert!((calibration.before.ece - 100.0 * (2.0 / 3.0 - 0.5)).abs() < 0.1 && calibration.after.ece < 0.5);
    assert_eq!((calibration.fitted_on, calibration.after.n), (400, 400));
    let [group] = calibration.by_clock.as_slice() else { panic!("one group") };
    assert_eq!((group.clock, group.n, group.actual_median), (CLOCKS[2], 400, None));
    assert!(calibration.think_time.is_none());
}

#[test]
fn a_perfect_prediction_of_whole_seconds_covers_four_fifths() {
    // Seconds 0 to 5, each as often as predicted; the median lies inside second 2.
    let shares = [0.1f32, 0.2, 0.3, 0.2, 0.1, 0.1];
    let mut logits = [-60.0; think_time::BINS.len()];
    logits.iter_mut().zip(shares).for_each(|(logit, share)| *logit = share.ln());
    let times = (0..6).zip([10, 20, 30, 20, 10, 10]).flat_map(|(second, count)| vec![second as f32; count]);
    let sample = |(number, time): (usize, f32)| {
        let think = Some((ThinkTime::of(&logits), time));
        Sample { test: number % 2 == 1, logits: vec![0.0], played: 0, clock: Some(3), think }
    };
    let samples = times.flat_map(|time| [time; 2]).enumerate().map(sample).collect::<Vec<_>>();
    let calibration = measure("perfect", &samples);
    let group = &calibration.by_clock[0];
    assert!((group.coverage.unwrap() - 80.0).abs() < 0.1, "{group:?}");
    assert_eq!(group.actual_median, Some(2.0));
    assert!((group.predicted_median.unwrap() - 2.0).abs() <= 0.5);
}

#[test]
fn think_times_are_compared_with_the_distribution_of_all() {
    let sure = |bin: usize| {
        let mut logits = [0.0; think_time::BINS.len()];
        logits[bin] = 20.0;
        ThinkTime::of(&logits)
    };
    let sample = |number: usize| {
        let actual = [1.0, 9.0][number / 2 % 2];
        let think = Some((sure(think_time::bin(actual)), actual));
        Sample { test: number % 2 == 1, logits: vec![0.0], played: 0, clock: None, think }
    };
    let samples = (0..400).map(sample).collect::<Vec<_>>();
    let times = measure("tiny", &samples).think_time.unwrap();
    assert_eq!(times.n, 200);
    assert!(times.nll < 1e-3 && (times.nll_of_the_mean - 2f64.ln()).abs() < 0.2);
}

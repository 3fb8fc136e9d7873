//! Latency drawn: a line for each load, milliseconds over the share of calls that were faster.

use std::path::Path;

use anyhow::{Result, anyhow};
use plotters::prelude::*;

/// A line: its name, and pairs of share (below 1) and milliseconds.
pub type Line = (String, Vec<(f64, f64)>);

/// Draws lines as SVG. The axis of shares is in nines, as tails are what people wait for.
///
/// # Errors
///
/// When there is nothing to draw or the file cannot be written.
pub fn draw(path: &Path, title: &str, lines: &[Line]) -> Result<()> {
    let highest = lines.iter().flat_map(|(_, points)| points).map(|point| point.1).fold(0.0, f64::max);
    if highest <= 0.0 {
        return Err(anyhow!("no call was answered, there is nothing to draw"));
    }
    let root = SVGBackend::new(path, (860, 480)).into_drawing_area();
    root.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&root)
        .caption(title, ("sans-serif", 20))
        .margin(12)
        .x_label_area_size(44)
        .y_label_area_size(64)
        .build_cartesian_2d(0.0..4.0, (0.1..highest * 1.2).log_scale())?;
    chart
        .configure_mesh()
        .x_desc("share of the answers that were faster")
        .y_desc("milliseconds from when a call was due")
        .x_label_formatter(&|nines| format!("{}%", 100.0 * (1.0 - 10_f64.powf(-nines))))
        .x_labels(5)
        .draw()?;
    for (number, (name, points)) in lines.iter().enumerate() {
        let colour = Palette99::pick(number).to_rgba();
        let points = points.iter().map(|&(share, ms)| (-(1.0 - share).max(1e-4).log10(), ms.max(0.1)));
        let line = chart.draw_series(LineSeries::new(points, colour.stroke_width(2)))?;
        line.label(name).legend(move |(x, y)| PathElement::new([(x, y), (x + 16, y)], colour.stroke_width(2)));
    }
    chart.configure_series_labels().background_style(WHITE.mix(0.8)).border_style(BLACK.mix(0.3)).draw()?;
    root.present()?;
    Ok(())
}

//! Plots as SVG, by hand: bars with a spread, and lines over a logarithmic time.
//!
//! A page has three kinds of plots, each a few elements; a library for plots would bring fonts and rasters.

use super::html::escape;
use std::fmt::Write as _;
use workload::Spread;

/// Of the series, in their order: told apart by people who do not see all colours too (Okabe and Ito).
const COLOURS: [&str; 8] = [
    "#0072b2", "#e69f00", "#009e73", "#d55e00", "#56b4e9", "#cc79a7", "#7f7f7f", "#b8a800",
];

const WIDTH: f64 = 640.0;
const HEIGHT: f64 = 300.0;
/// Room for the numbers of the axes, and for the words below and above.
const LEFT: f64 = 72.0;
const RIGHT: f64 = 14.0;
const TOP: f64 = 30.0;
const BOTTOM: f64 = 46.0;

/// The colour of a series.
pub fn colour(series: usize) -> &'static str {
    COLOURS[series % COLOURS.len()]
}

/// What a plot is called, and what its axes are.
pub struct Words<'a> {
    pub title: &'a str,
    pub x: &'a str,
    pub y: &'a str,
}

/// A bar of a series, in a group.
pub struct Bar {
    pub group: usize,
    pub series: usize,
    /// Its mean is the bar, its least and its most are the line on it.
    pub spread: Spread,
    pub count: u64,
}

/// A line of a series.
pub struct Line {
    pub series: usize,
    pub is_dashed: bool,
    /// A time in milliseconds, above 0, and the part that is not longer.
    pub points: Vec<(f64, f64)>,
}

/// Groups of bars, from 0.
pub fn bars(words: &Words<'_>, groups: &[String], series: usize, bars: &[Bar]) -> String {
    let most = bars.iter().map(|bar| bar.spread.most).fold(0.0, f64::max);
    let step = step(most);
    let top = (most / step).ceil().max(1.0) * step;
    let y = |value: f64| HEIGHT - BOTTOM - (HEIGHT - BOTTOM - TOP) * value / top;
    let mut svg = begin(words);
    let mut tick = 0.0;
    while tick <= top * 1.001 {
        horizontal(&mut svg, y(tick), &short(tick));
        tick += step;
    }
    let group_width = (WIDTH - LEFT - RIGHT) / groups.len().max(1) as f64;
    let bar_width = (group_width * 0.8 / series.max(1) as f64).min(48.0);
    let left =
        |group: usize| LEFT + group_width * (group as f64 + 0.5) - bar_width * series as f64 / 2.0;
    for (index, name) in groups.iter().enumerate() {
        let x = LEFT + group_width * (index as f64 + 0.5);
        below(&mut svg, x, name);
    }
    for bar in bars {
        let x = left(bar.group) + bar_width * bar.series as f64;
        let Spread {
            least, mean, most, ..
        } = bar.spread;
        let (high, low) = (y(mean), y(0.0));
        let middle = x + bar_width / 2.0;
        let _ = write!(
            svg,
            "<g><title>{}: mean {}, {} to {} of {}</title>\
             <rect x=\"{x:.1}\" y=\"{high:.1}\" width=\"{:.1}\" height=\"{:.1}\" fill=\"{}\"/>\
             <path class=\"spread\" d=\"M{middle:.1} {:.1}V{:.1}\"/></g>",
            escape(&groups[bar.group]),
            short(mean),
            short(least),
            short(most),
            bar.count,
            bar_width * 0.9,
            low - high,
            colour(bar.series),
            y(most),
            y(least),
        );
    }
    svg.push_str("</svg>");
    svg
}

/// Lines over a logarithmic time.
pub fn lines(words: &Words<'_>, lines: &[Line]) -> String {
    let times = || {
        lines
            .iter()
            .flat_map(|line| &line.points)
            .map(|point| point.0)
    };
    let least = times().fold(f64::INFINITY, f64::min);
    let most = times().fold(0.0, f64::max);
    let mut svg = begin(words);
    if !least.is_finite() || least <= 0.0 {
        svg.push_str("</svg>");
        return svg;
    }
    let first = least.log10().floor();
    let last = most.log10().ceil().max(first + 1.0);
    let x = |time: f64| LEFT + (WIDTH - LEFT - RIGHT) * (time.log10() - first) / (last - first);
    let y = |part: f64| HEIGHT - BOTTOM - (HEIGHT - BOTTOM - TOP) * part;
    for quarter in 0..=4 {
        let part = f64::from(quarter) / 4.0;
        horizontal(&mut svg, y(part), &format!("{:.0} %", part * 100.0));
    }
    let mut decade = first;
    while decade <= last {
        let time = 10_f64.powf(decade);
        let _ = write!(
            svg,
            "<path class=\"grid\" d=\"M{:.1} {TOP:.1}V{:.1}\"/>",
            x(time),
            HEIGHT - BOTTOM
        );
        below(&mut svg, x(time), &short(time));
        decade += 1.0;
    }
    for line in lines {
        let mut path = String::new();
        // A distribution is a staircase: below a time there is what was not longer than the one before.
        for (index, &(time, part)) in line.points.iter().enumerate() {
            let _ = match index {
                0 => write!(path, "M{:.1} {:.1}", x(time), y(part)),
                _ => write!(path, "H{:.1}V{:.1}", x(time), y(part)),
            };
        }
        let dashes = match line.is_dashed {
            true => " stroke-dasharray=\"5 3\"",
            false => "",
        };
        let _ = write!(
            svg,
            "<path class=\"line\" stroke=\"{}\"{dashes} d=\"{path}\"/>",
            colour(line.series)
        );
    }
    svg.push_str("</svg>");
    svg
}

fn begin(words: &Words<'_>) -> String {
    let Words { title, x, y } = words;
    format!(
        "<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{title}\">\
         <text class=\"title\" x=\"{LEFT}\" y=\"18\">{title}</text>\
         <text class=\"axis\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{x}</text>\
         <text class=\"axis\" transform=\"translate(14 {:.1}) rotate(-90)\" text-anchor=\"middle\">{y}</text>",
        (LEFT + WIDTH - RIGHT) / 2.0,
        HEIGHT - 8.0,
        (TOP + HEIGHT - BOTTOM) / 2.0,
        title = escape(title),
        x = escape(x),
        y = escape(y),
    )
}

fn horizontal(svg: &mut String, y: f64, number: &str) {
    let _ = write!(
        svg,
        "<path class=\"grid\" d=\"M{LEFT} {y:.1}H{:.1}\"/>\
         <text class=\"tick\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{number}</text>",
        WIDTH - RIGHT,
        LEFT - 6.0,
        y + 4.0,
    );
}

fn below(svg: &mut String, x: f64, text: &str) {
    let _ = write!(
        svg,
        "<text class=\"tick\" x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
        HEIGHT - BOTTOM + 16.0,
        escape(text)
    );
}

/// Between the numbers of an axis: 1, 2 or 5 of some power of ten, so that there are five at most.
fn step(most: f64) -> f64 {
    if most <= 0.0 || !most.is_finite() {
        return 1.0;
    }
    let power = 10_f64.powf((most / 5.0).log10().floor());
    let wanted = most / 5.0 / power;
    let factor = [1.0, 2.0, 5.0].into_iter().find(|one| wanted <= *one);
    factor.unwrap_or(10.0) * power
}

/// A number in few characters.
pub fn short(value: f64) -> String {
    let (value, unit) = match value.abs() {
        at if at >= 1e9 => (value / 1e9, " G"),
        at if at >= 1e6 => (value / 1e6, " M"),
        at if at >= 1e4 => (value / 1e3, " k"),
        _ => (value, ""),
    };
    let text = match value.abs() {
        at if at >= 100.0 || at == 0.0 => format!("{value:.0}"),
        at if at >= 1.0 => format!("{value:.2}"),
        _ => format!("{value:.4}"),
    };
    let text = match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.'),
        false => &text,
    };
    format!("{text}{unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short_and_steps_are_round() {
        for (value, text) in [
            (0.0, "0"),
            (0.001, "0.001"),
            (0.25, "0.25"),
            (12.0, "12"),
            (123.4, "123"),
            (1500.0, "1500"),
            (39_000.0, "39 k"),
            (5_500_000.0, "5.5 M"),
        ] {
            assert_eq!(short(value), text);
        }
        for (most, expected) in [(10.0, 2.0), (39_000.0, 10_000.0), (0.7, 0.2), (0.0, 1.0)] {
            assert!((step(most) / expected - 1.0).abs() < 1e-9, "{most}");
        }
    }

    #[test]
    fn a_bar_stands_as_high_as_its_mean_and_its_line_from_least_to_most() {
        let words = Words {
            title: "rate",
            x: "consumers",
            y: "a second",
        };
        let spread = Spread {
            least: 50.0,
            median: 100.0,
            mean: 100.0,
            most: 200.0,
            deviation: 1.0,
        };
        let bar = Bar {
            group: 0,
            series: 0,
            spread,
            count: 3,
        };
        let svg = bars(&words, &["<1>".to_owned()], 1, &[bar]);
        // 224 high from 254 up: half of it, and from a quarter of it to all of it.
        assert!(svg.contains("y=\"142.0\""), "{svg}");
        assert!(svg.contains("height=\"112.0\""), "{svg}");
        assert!(svg.contains("30.0V198.0\""), "{svg}");
        assert!(svg.contains("&lt;1&gt;: mean 100, 50 to 200 of 3"), "{svg}");
    }

    #[test]
    fn a_line_is_a_staircase_between_decades() {
        let words = Words {
            title: "times",
            x: "ms",
            y: "part",
        };
        let line = Line {
            series: 1,
            is_dashed: true,
            points: vec![(1.0, 0.0), (10.0, 0.5), (100.0, 1.0)],
        };
        let svg = lines(&words, &[line]);
        assert!(
            svg.contains("d=\"M72.0 254.0H349.0V142.0H626.0V30.0\""),
            "{svg}"
        );
        assert!(svg.contains("stroke-dasharray"), "{svg}");
        assert!(lines(&words, &[]).ends_with("</svg>"));
    }
}

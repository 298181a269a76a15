//! Arrays, as the metadata of events describes them, and which bytes of one a picture needs.

use serde_json::Value;
use wire::view::Segment;

/// The most pixels of a picture in a row or a column: of larger arrays every n-th is taken.
pub const SIDE_MAX: u64 = 1024;
/// The most bytes that are read of one event.
pub const READ_BYTES_MAX: u64 = 64 << 20;

/// What an array's bytes are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Values {
    kind: Kind,
    bytes: usize,
    is_big_endian: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Bool,
    Unsigned,
    Signed,
    Float,
}

impl Values {
    /// Of numpy's description, as in `<u2`, or its name for one, as in `uint16`.
    fn parse(text: &str) -> Option<Self> {
        let (order, rest) = match text.split_at_checked(1)? {
            (order @ ("<" | ">" | "=" | "|"), rest) => (order, rest),
            _ => ("=", text),
        };
        let split = rest.find(|letter: char| letter.is_ascii_digit());
        let (kind, number) = rest.split_at(split.unwrap_or(rest.len()));
        // Names have bits.
        let per = |unit: usize| number.parse::<usize>().ok().map(|count| count / unit);
        let (kind, bytes) = match kind {
            "?" | "bool" if number.is_empty() => (Kind::Bool, 1),
            "b" => (Kind::Bool, per(1)?),
            "u" => (Kind::Unsigned, per(1)?),
            "i" => (Kind::Signed, per(1)?),
            "f" => (Kind::Float, per(1)?),
            "uint" => (Kind::Unsigned, per(8)?),
            "int" => (Kind::Signed, per(8)?),
            "float" => (Kind::Float, per(8)?),
            _ => return None,
        };
        let sizes: &[usize] = match kind {
            Kind::Bool => &[1],
            Kind::Unsigned | Kind::Signed => &[1, 2, 4, 8],
            Kind::Float => &[2, 4, 8],
        };
        sizes.contains(&bytes).then_some(Self {
            kind,
            bytes,
            is_big_endian: match order {
                ">" => true,
                "=" => cfg!(target_endian = "big"),
                _ => false,
            },
        })
    }

    /// Whether each is a byte from 0 to 255.
    pub fn are_bytes(&self) -> bool {
        self.kind == Kind::Unsigned && self.bytes == 1
    }

    /// The value in `bytes`, which are as many as one has.
    pub fn value(&self, bytes: &[u8]) -> f64 {
        let mut little = [0; 8];
        little[..self.bytes].copy_from_slice(bytes);
        if self.is_big_endian {
            little[..self.bytes].reverse();
        }
        let bits = u64::from_le_bytes(little);
        let unused = 64 - 8 * self.bytes as u32;
        match (self.kind, self.bytes) {
            (Kind::Bool, _) => f64::from(u8::from(bits != 0)),
            (Kind::Unsigned, _) => bits as f64,
            (Kind::Signed, _) => ((bits << unused) as i64 >> unused) as f64,
            (Kind::Float, 2) => half(bits as u16),
            (Kind::Float, 4) => f64::from(f32::from_bits(bits as u32)),
            (Kind::Float, _) => f64::from_bits(bits),
        }
    }
}

/// The value of an IEEE 754 binary16.
fn half(bits: u16) -> f64 {
    let sign = if bits >> 15 == 1 { -1.0 } else { 1.0 };
    let fraction = f64::from(bits & 0x3ff);
    sign * match bits >> 10 & 0x1f {
        0 => fraction * 2f64.powi(-24),
        0x1f if fraction == 0.0 => f64::INFINITY,
        0x1f => f64::NAN,
        exponent => (1.0 + fraction / 1024.0) * 2f64.powi(i32::from(exponent) - 15),
    }
}

/// How an array is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PictureKind {
    /// One dimension.
    Line,
    /// Two dimensions.
    Grey,
    /// Three dimensions, the last of which is red, green, blue.
    Rgb,
}

impl PictureKind {
    /// The word for it that the page knows.
    pub fn name(self) -> &'static str {
        match self {
            Self::Line => "line",
            Self::Grey => "grey",
            Self::Rgb => "rgb",
        }
    }

    /// How many values a pixel has.
    pub fn channels(self) -> u64 {
        match self {
            Self::Rgb => 3,
            _ => 1,
        }
    }
}

/// A picture's shape.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    pub kind: PictureKind,
    /// In pixels.
    pub width: u64,
    /// In pixels.
    pub height: u64,
    /// Every how many-th row and column of the array is a pixel.
    pub steps: (u64, u64),
}

/// Which bytes of an array a picture needs, and what they are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    pub shape: Shape,
    pub values: Values,
    /// Lines of memory: rows, or of Fortran's arrays columns; from each is taken what the
    /// picture shows.
    pub segments: Vec<Segment>,
    /// Whether lines are columns.
    is_fortran: bool,
    /// Values in a line.
    line_values: u64,
}

impl Plan {
    /// Of an event with this metadata and so many bytes of data. Otherwise a sentence that says
    /// why there is no picture.
    pub fn of(metadata: &Value, data_bytes: u64) -> Result<Self, String> {
        let (Some(dtype), Some(shape)) = (metadata.get("dtype"), metadata.get("shape")) else {
            return Err("It is no array: its metadata has no dtype and shape.".to_owned());
        };
        let Some(text) = dtype.as_str() else {
            return Err("Its values are structured: of fields there is no picture.".to_owned());
        };
        let values = Values::parse(text).ok_or_else(|| {
            format!(
                "Of dtype {text} there is no picture: values can be whole numbers of 1 to 8 bytes, \
                 floating-point numbers of 2, 4 or 8 bytes, and booleans."
            )
        })?;
        let lengths = shape.as_array().map(|lengths| {
            let lengths = lengths.iter().map(Value::as_u64);
            lengths.collect::<Option<Vec<u64>>>()
        });
        let (kind, rows, columns) = match lengths.flatten().as_deref() {
            Some([columns]) => (PictureKind::Line, 1, *columns),
            Some([rows, columns]) => (PictureKind::Grey, *rows, *columns),
            Some([rows, columns, 3]) => (PictureKind::Rgb, *rows, *columns),
            _ => {
                return Err(format!(
                    "Of an array of shape {shape} there is no picture: it can have one dimension (a \
                     line), two, or a third of length 3 (red, green, blue)."
                ));
            }
        };
        let channels = kind.channels();
        let count = rows
            .checked_mul(columns)
            .and_then(|n| n.checked_mul(channels));
        let bytes = count.and_then(|count| count.checked_mul(values.bytes as u64));
        match bytes {
            Some(0) => return Err(format!("The array of shape {shape} is empty.")),
            Some(bytes) if bytes == data_bytes => {}
            _ => {
                return Err(format!(
                    "Its metadata says shape {shape} of {text}, and it has {data_bytes} bytes: that \
                     is another length."
                ));
            }
        }
        let steps = (rows.div_ceil(SIDE_MAX), columns.div_ceil(SIDE_MAX));
        let shape = Shape {
            kind,
            width: columns.div_ceil(steps.1),
            height: rows.div_ceil(steps.0),
            steps,
        };
        let is_fortran = metadata.get("order").and_then(Value::as_str) == Some("F");
        // Of Fortran's arrays the channels are planes of columns.
        let (line_values, planes, lines, step) = match is_fortran {
            false => (columns * channels, 1, rows, steps.0),
            true => (rows, channels, columns, steps.1),
        };
        let line_bytes = line_values * values.bytes as u64;
        let taken = planes * lines.div_ceil(step);
        // No more than the array has.
        let read = taken * line_bytes;
        if read > READ_BYTES_MAX {
            return Err(format!(
                "The array is too large for a picture: {read} bytes of it would be read for each, \
                 and the limit is {READ_BYTES_MAX}."
            ));
        }
        let segments = match step {
            1 => vec![Segment {
                offset: 0,
                bytes: read,
            }],
            _ => (0..planes)
                .flat_map(|plane| {
                    (0..lines)
                        .step_by(step as usize)
                        .map(move |line| (plane, line))
                })
                .map(|(plane, line)| Segment {
                    offset: (plane * lines + line) * line_bytes,
                    bytes: line_bytes,
                })
                .collect(),
        };
        Ok(Self {
            shape,
            values,
            segments,
            is_fortran,
            line_values,
        })
    }

    /// How many bytes are to be read.
    pub fn bytes(&self) -> u64 {
        self.segments.iter().map(|segment| segment.bytes).sum()
    }

    /// The values of the picture, row by row, of the bytes that were read.
    pub fn sample(&self, read: &[u8]) -> Vec<f64> {
        let Shape {
            kind,
            width,
            height,
            steps,
        } = self.shape;
        let channels = kind.channels();
        let mut sampled = Vec::with_capacity((width * height * channels) as usize);
        for y in 0..height {
            for x in 0..width {
                for channel in 0..channels {
                    let (line, at) = match self.is_fortran {
                        false => (y, x * steps.1 * channels + channel),
                        true => (channel * width + x, y * steps.0),
                    };
                    let begin = (line * self.line_values + at) as usize * self.values.bytes;
                    sampled.push(self.values.value(&read[begin..begin + self.values.bytes]));
                }
            }
        }
        sampled
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// The values that a picture of an array with these bytes has.
    fn shown(metadata: &Value, data: &[u8]) -> (Shape, Vec<f64>) {
        let plan = Plan::of(metadata, data.len() as u64).unwrap();
        let mut read = Vec::new();
        for segment in &plan.segments {
            let begin = segment.offset as usize;
            read.extend_from_slice(&data[begin..begin + segment.bytes as usize]);
        }
        assert_eq!(read.len() as u64, plan.bytes());
        (plan.shape, plan.sample(&read))
    }

    fn why_not(metadata: Value, bytes: u64) -> String {
        Plan::of(&metadata, bytes).unwrap_err()
    }

    #[test]
    fn values_of_every_dtype() {
        let value = |dtype: &str, bytes: &[u8]| Values::parse(dtype).unwrap().value(bytes);
        assert_eq!(value("<u2", &[1, 2]), 513.0);
        assert_eq!(value(">u2", &[1, 2]), 258.0);
        assert_eq!(value("|u1", &[200]), 200.0);
        assert_eq!(value("|i1", &[200]), -56.0);
        assert_eq!(value(">i2", &[0xff, 0xfe]), -2.0);
        assert_eq!(value("<i4", &(-7i32).to_le_bytes()), -7.0);
        assert_eq!(value(">i8", &(-1i64 << 40).to_be_bytes()), -(2f64.powi(40)));
        assert_eq!(value("<u8", &u64::MAX.to_le_bytes()), 2f64.powi(64));
        assert_eq!(value(">f4", &1.5f32.to_be_bytes()), 1.5);
        assert_eq!(value("<f8", &(-0.1f64).to_le_bytes()), -0.1);
        assert!(value("<f8", &f64::NAN.to_le_bytes()).is_nan());
        assert_eq!(value("|b1", &[2]), 1.0);
        assert_eq!(value("?", &[0]), 0.0);
        assert_eq!(value("bool", &[1]), 1.0);
        assert_eq!(value("uint16", &513u16.to_ne_bytes()), 513.0);
        assert_eq!(value("float32", &2.5f32.to_ne_bytes()), 2.5);
        for (bits, expected) in [
            (0x3c00, 1.0),
            (0xc000, -2.0),
            (0x7bff, 65504.0),
            (0x0001, 2f64.powi(-24)),
            (0x7c00, f64::INFINITY),
            (0xfc00, f64::NEG_INFINITY),
        ] {
            assert_eq!(value("<f2", &u16::to_le_bytes(bits)), expected, "{bits:x}");
        }
        assert!(value("<f2", &[0x01, 0x7c]).is_nan());
    }

    #[test]
    fn what_has_no_picture_says_why() {
        for dtype in [
            "<c8", "<U4", "|S3", "<M8[ns]", "|V4", "<f16", "<u3", "", "u", "é", "<",
        ] {
            let why = why_not(json!({"dtype": dtype, "shape": [2]}), 2);
            assert!(why.contains("there is no picture"), "{dtype}: {why}");
        }
        let fields = json!([["pixel", "<u4"], ["energy", "<f4"]]);
        assert!(why_not(json!({"dtype": fields, "shape": [2]}), 16).contains("structured"));
        assert!(why_not(json!({"angle": 1}), 5).contains("no array"));
        assert!(why_not(json!("text"), 5).contains("no array"));
        for shape in [
            json!([]),
            json!([2, 2, 4]),
            json!([1, 1, 1, 3]),
            json!([-1]),
            json!("2"),
        ] {
            let why = why_not(json!({"dtype": "<u2", "shape": shape}), 2);
            assert!(why.contains("one dimension"), "{why}");
        }
        assert!(why_not(json!({"dtype": "<u2", "shape": [0, 7]}), 0).contains("empty"));
        assert!(why_not(json!({"dtype": "<u2", "shape": [2, 7]}), 27).contains("27 bytes"));
        let huge = json!({"dtype": "<u8", "shape": [u64::MAX, 3, 3]});
        assert!(why_not(huge, 8).contains("another length"));
        let long = json!({"dtype": "<u8", "shape": [1024, 1 << 20]});
        assert!(why_not(long, 1 << 33).contains("too large"));
    }

    #[test]
    fn orders_of_memory_are_the_same_picture() {
        let grey = |y: u8, x: u8| 10 * y + x;
        let c: Vec<u8> = (0..3)
            .flat_map(|y| (0..4).map(move |x| grey(y, x)))
            .collect();
        let f: Vec<u8> = (0..4)
            .flat_map(|x| (0..3).map(move |y| grey(y, x)))
            .collect();
        let (shape, values) = shown(&json!({"dtype": "|u1", "shape": [3, 4]}), &c);
        assert_eq!((shape.height, shape.width, shape.steps), (3, 4, (1, 1)));
        assert_eq!(
            values,
            c.iter().map(|one| f64::from(*one)).collect::<Vec<_>>()
        );
        let fortran = json!({"dtype": "|u1", "shape": [3, 4], "order": "F"});
        assert_eq!(shown(&fortran, &f), (shape, values));

        let rgb = |y: u8, x: u8, c: u8| 100 * c + 10 * y + x;
        let mut c = Vec::new();
        let mut f = vec![0; 2 * 3 * 3];
        for y in 0..2 {
            for x in 0..3 {
                for channel in 0..3 {
                    c.push(rgb(y, x, channel));
                    f[usize::from(y + 2 * x + 6 * channel)] = rgb(y, x, channel);
                }
            }
        }
        let (shape, values) = shown(&json!({"dtype": "|u1", "shape": [2, 3, 3]}), &c);
        assert_eq!(shape.kind, PictureKind::Rgb);
        assert_eq!(
            values,
            c.iter().map(|one| f64::from(*one)).collect::<Vec<_>>()
        );
        let fortran = json!({"dtype": "|u1", "shape": [2, 3, 3], "order": "F"});
        assert_eq!(shown(&fortran, &f), (shape, values));
    }

    /// Of a large array only the lines that are shown are read.
    #[test]
    fn large_arrays_are_shown_by_every_nth_row_and_column() {
        let (rows, columns) = (2050u64, 3000u64);
        let value = |y: u64, x: u64| (y * 7 + x) as u16;
        for order in ["C", "F"] {
            let cells = (0..rows * columns).map(|at| match order {
                "C" => value(at / columns, at % columns),
                _ => value(at % rows, at / rows),
            });
            let data: Vec<u8> = cells.flat_map(u16::to_le_bytes).collect();
            let metadata = json!({"dtype": "<u2", "shape": [rows, columns], "order": order});
            let (shape, values) = shown(&metadata, &data);
            assert_eq!(shape.steps, (3, 3));
            assert_eq!((shape.height, shape.width), (684, 1000));
            let expected = |at: u64| f64::from(value(at / 1000 * 3, at % 1000 * 3));
            let differing = (0..684_000).find(|at| values[*at as usize] != expected(*at));
            assert_eq!((values.len(), differing), (684_000, None), "{order}");
            let read = Plan::of(&metadata, data.len() as u64).unwrap().bytes();
            assert!(read * 3 <= data.len() as u64 + 3 * 6000, "{read}");
        }
        let line = json!({"dtype": "|u1", "shape": [2049]});
        let data: Vec<u8> = (0..2049).map(|at| at as u8).collect();
        let (shape, values) = shown(&line, &data);
        assert_eq!(
            (shape.kind, shape.width, shape.height),
            (PictureKind::Line, 683, 1)
        );
        assert_eq!(values[682], f64::from(2046u32 as u8));
    }
}

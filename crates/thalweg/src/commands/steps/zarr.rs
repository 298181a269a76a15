//! A directory in the Zarr format, version 3 (<https://zarr-specs.readthedocs.io/en/latest/v3/core/index.html>), that
//! grows by steps: a group with an array for each variable, whose first dimension is the step.
//!
//! A step's chunks are written before the lengths of the arrays say that they are there, the length
//! of the array `step` last: what that counts is whole, whenever the writer ends.

use super::elements::attribute_json;
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use step::{
    Along, Attributes, ByteOrder, DType, Element, Range, Selection, ShapeKind, StepError, StepView,
};

/// The most bytes of a chunk of a variable that does not end with smaller ones: what is held in memory.
const CHUNK_BYTES_MAX: u64 = 64 << 20;
/// The most chunks that one step of a variable may have.
const CHUNKS_MAX: u64 = 1 << 20;
/// The coordinate of steps: its elements are their numbers.
const STEP: &str = "step";
const METADATA: &str = "zarr.json";
/// As xarray and Zarr 2 call it: names of dimensions.
const DIMENSIONS: &str = "_ARRAY_DIMENSIONS";

/// Why a step cannot be written.
#[derive(Debug)]
pub enum Problem {
    Read(StepError),
    Write(PathBuf, io::Error),
}

impl From<StepError> for Problem {
    fn from(error: StepError) -> Self {
        Self::Read(error)
    }
}

/// A group that grows by steps.
pub struct Group {
    root: PathBuf,
    arrays: BTreeMap<String, Grown>,
    /// Groups between the root and arrays.
    groups: BTreeSet<String>,
    left_out: BTreeMap<String, String>,
    steps: u64,
    bytes: u64,
}

/// What a variable, or a block of a local array, is in a step.
struct Item<'a> {
    variable: &'a str,
    /// Its array, below the root.
    path: String,
    dtype: &'a DType,
    shape: Vec<u64>,
    from: Source,
}

#[derive(Clone, Copy, PartialEq)]
enum Source {
    Whole,
    Block(u64),
    /// Single values, which come with the step's table.
    Values,
}

/// An array as it has grown so far.
struct Grown {
    kind: Stored,
    /// The largest of all steps, without the step's dimension.
    shape: Vec<u64>,
    chunk: Vec<u64>,
    lengths: Lengths,
    dimensions: Option<Vec<String>>,
    attributes: Map<String, Value>,
}

/// How long an array was in each step.
enum Lengths {
    /// The same in these steps, which are all that it was in.
    Alike { steps: Vec<u64>, lengths: Vec<u64> },
    /// An array of their own has them.
    Written,
}

/// How elements are stored.
#[derive(Clone, PartialEq)]
struct Stored {
    dtype: DType,
    /// The name of the type, as Zarr has it.
    name: String,
    fill: Value,
    fill_bytes: Vec<u8>,
    codecs: Value,
    /// Elements that Zarr has no common type for are bytes, along a last dimension.
    is_bytes: bool,
    units: Option<String>,
}

impl Stored {
    fn of(dtype: &DType) -> Self {
        let item = dtype.item_bytes() as usize;
        let bits = item * 8;
        let endian = match dtype.order() {
            ByteOrder::Big => "big",
            ByteOrder::Little | ByteOrder::None => "little",
        };
        let codecs = json!([{"name": "bytes", "configuration": {"endian": endian}}]);
        let mut stored = Self {
            dtype: dtype.clone(),
            name: String::new(),
            fill: json!(0),
            fill_bytes: vec![0; item],
            codecs,
            is_bytes: false,
            units: None,
        };
        let float = |bytes: usize| {
            let mut nan = match bytes {
                2 => 0x7e00u16.to_le_bytes().to_vec(),
                4 => f32::NAN.to_le_bytes().to_vec(),
                _ => f64::NAN.to_le_bytes().to_vec(),
            };
            if dtype.order() == ByteOrder::Big {
                nan.reverse();
            }
            nan
        };
        match dtype.element() {
            Element::Bool => {
                "bool".clone_into(&mut stored.name);
                stored.fill = json!(false);
            }
            Element::Signed => stored.name = format!("int{bits}"),
            Element::Unsigned => stored.name = format!("uint{bits}"),
            Element::Float if item <= 8 => {
                stored.name = format!("float{bits}");
                stored.fill = json!("NaN");
                stored.fill_bytes = float(item);
            }
            Element::Complex if item <= 16 => {
                stored.name = format!("complex{bits}");
                stored.fill = json!(["NaN", "NaN"]);
                stored.fill_bytes = float(item / 2).repeat(2);
            }
            Element::Time | Element::Duration => {
                "int64".clone_into(&mut stored.name);
                stored.fill = json!(i64::MIN);
                stored.fill_bytes = i64::MIN.to_le_bytes().to_vec();
                if dtype.order() == ByteOrder::Big {
                    stored.fill_bytes.reverse();
                }
                stored.units = cf_units(dtype);
            }
            Element::Text => {
                "string".clone_into(&mut stored.name);
                stored.fill = json!("");
                stored.codecs = json!([{"name": "vlen-utf8"}]);
            }
            _ => {
                "uint8".clone_into(&mut stored.name);
                stored.codecs = json!([{"name": "bytes"}]);
                stored.is_bytes = true;
            }
        }
        if item == 1 && !stored.is_bytes {
            stored.codecs = json!([{"name": "bytes"}]);
        }
        stored
    }
}

/// Units of a time as the conventions of climate and forecast have them; of units that they have not, none.
fn cf_units(dtype: &DType) -> Option<String> {
    let (_, unit) = dtype.as_str().split_once('[')?;
    let unit = match unit.trim_end_matches(']') {
        "D" => "days",
        "h" => "hours",
        "m" => "minutes",
        "s" => "seconds",
        "ms" => "milliseconds",
        "us" => "microseconds",
        "ns" => "nanoseconds",
        _ => return None,
    };
    Some(match dtype.element() {
        Element::Time => format!("{unit} since 1970-01-01"),
        _ => unit.to_owned(),
    })
}

impl Group {
    /// An empty one, in a directory that is made, or is there and empty.
    pub fn create(root: &Path) -> io::Result<Self> {
        fs::create_dir_all(root)?;
        if fs::read_dir(root)?.next().is_some() {
            return Err(io::Error::new(
                io::ErrorKind::AlreadyExists,
                "is there already, and not empty",
            ));
        }
        Ok(Self {
            root: root.to_owned(),
            arrays: BTreeMap::new(),
            groups: BTreeSet::new(),
            left_out: BTreeMap::new(),
            steps: 0,
            bytes: 0,
        })
    }

    /// How many steps it has.
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// Bytes of elements that were written.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Variables that it cannot have, and why.
    pub fn left_out(&self) -> &BTreeMap<String, String> {
        &self.left_out
    }

    /// Appends a step. `about` are attributes of the group, beside those of the run.
    pub fn append(&mut self, view: &StepView, about: &Map<String, Value>) -> Result<(), Problem> {
        let variables = view.variables()?;
        for variable in &variables {
            let item = |path: String, shape: Vec<u64>, from| Item {
                variable: &variable.name,
                path,
                dtype: &variable.dtype,
                shape,
                from,
            };
            let name = variable.name.as_str();
            match variable.kind {
                ShapeKind::LocalArray => {
                    let layout = view.layout(name)?;
                    for index in 0..layout.block_count() {
                        if let Some(block) = layout.block(index) {
                            let from = Source::Block(index as u64);
                            let path = format!("{name}/{index}");
                            self.put(view, &item(path, block.count.to_vec(), from))?;
                        }
                    }
                }
                ShapeKind::Value | ShapeKind::LocalValue => {
                    self.put(
                        view,
                        &item(name.to_owned(), variable.shape.clone(), Source::Values),
                    )?;
                }
                ShapeKind::Array | ShapeKind::Joined => {
                    self.put(
                        view,
                        &item(name.to_owned(), variable.shape.clone(), Source::Whole),
                    )?;
                }
            }
        }
        self.steps += 1;
        for path in self.arrays.keys() {
            self.describe(path)?;
        }
        for group in &self.groups {
            let told = json!({"zarr_format": 3, "node_type": "group", "attributes": {}});
            let path = self.root.join(group).join(METADATA);
            if !path.exists() {
                write(&path, told.to_string().as_bytes())?;
            }
        }
        self.write_group(view.attributes(), about)?;
        let number = i64::try_from(view.number().0).unwrap_or(i64::MAX);
        let chunk = self
            .root
            .join(STEP)
            .join("c")
            .join((self.steps - 1).to_string());
        write(&chunk, &number.to_le_bytes())?;
        let told = metadata(
            &Stored::of(&int64()),
            &[self.steps],
            &[1],
            &["step".to_owned()],
            &Map::new(),
        );
        write(
            &self.root.join(STEP).join(METADATA),
            told.to_string().as_bytes(),
        )
    }

    /// Says in the group's attributes how the recording has ended.
    pub fn finish(
        &self,
        attributes: &Attributes,
        about: &Map<String, Value>,
    ) -> Result<(), Problem> {
        self.write_group(attributes, about)
    }

    fn write_group(
        &self,
        attributes: &Attributes,
        about: &Map<String, Value>,
    ) -> Result<(), Problem> {
        let owner = |name: &str| name.rsplit_once('/').map(|(owner, _)| owner.to_owned());
        let mut told: Map<String, Value> = attributes
            .iter()
            .filter(|(name, _)| !owner(name).is_some_and(|owner| self.arrays.contains_key(&owner)))
            .map(|(name, value)| {
                (
                    name.to_owned(),
                    super::choice::parsed(&attribute_json(value)),
                )
            })
            .collect();
        told.insert("thalweg".to_owned(), Value::Object(about.clone()));
        let told = json!({"zarr_format": 3, "node_type": "group", "attributes": told});
        write(&self.root.join(METADATA), told.to_string().as_bytes())
    }

    fn leave_out(&mut self, variable: &str, why: String) {
        self.left_out.entry(variable.to_owned()).or_insert(why);
    }

    /// Writes the chunks of a variable of a step.
    fn put(&mut self, view: &StepView, item: &Item<'_>) -> Result<(), Problem> {
        if !self.arrays.contains_key(&item.path) {
            match self.begin(view, item) {
                Ok(grown) => drop(self.arrays.insert(item.path.clone(), grown)),
                Err(why) => {
                    self.leave_out(item.variable, why);
                    return Ok(());
                }
            }
        }
        let grown = self.arrays.get_mut(&item.path).expect("it is there now");
        if grown.kind.dtype != *item.dtype || grown.shape.len() != item.shape.len() {
            let why = format!(
                "step {} has it as {} of {} dimensions, which are {} of {} in the steps before",
                view.number(),
                item.dtype,
                item.shape.len(),
                grown.kind.dtype,
                grown.shape.len()
            );
            self.leave_out(item.variable, why);
            return Ok(());
        }
        let at = self.steps;
        let directory = self.root.join(&item.path).join("c").join(at.to_string());
        let chunks = chunks_of(&item.shape, &grown.chunk);
        if chunks.is_none() {
            let why = format!(
                "step {} would have more than {CHUNKS_MAX} chunks of it",
                view.number()
            );
            self.leave_out(item.variable, why);
            return Ok(());
        }
        let told = lengths_to_write(&mut grown.lengths, at, &item.shape);
        for (step, lengths) in &told {
            let chunk = self.root.join(lengths_of(&item.path)).join("c");
            let bytes: Vec<u8> = lengths
                .iter()
                .flat_map(|length| length.to_le_bytes())
                .collect();
            write(&chunk.join(step.to_string()).join("0"), &bytes)?;
        }
        for (length, most) in item.shape.iter().zip(&mut grown.shape) {
            *most = (*most).max(*length);
        }
        for index in chunks.unwrap_or_default() {
            let ranges: Vec<Range> = index
                .iter()
                .zip(item.shape.iter().zip(&grown.chunk))
                .map(|(index, (length, chunk))| Range {
                    start: index * chunk,
                    count: (length - index * chunk).min(*chunk),
                    step: 1,
                })
                .collect();
            let data = read(view, item, &ranges, &grown.chunk)?;
            self.bytes += data.len() as u64;
            let count: Vec<u64> = ranges.iter().map(|range| range.count).collect();
            let whole = match item.dtype.is_text() {
                true => data,
                false => padded(data, &count, &grown.chunk, &grown.kind.fill_bytes),
            };
            let mut path = directory.clone();
            for one in &index {
                path.push(one.to_string());
            }
            if grown.kind.is_bytes {
                path.push("0");
            }
            write(&path, &whole)?;
        }
        Ok(())
    }

    /// A variable that is there for the first time, or why it cannot be an array.
    fn begin(&mut self, view: &StepView, item: &Item<'_>) -> Result<Grown, String> {
        let path = &item.path;
        let is_path = path.split('/').all(|part| {
            !part.is_empty()
                && !part.starts_with('.')
                && !part.starts_with("__")
                && part != METADATA
                && !part.contains('\0')
                && part.len() <= 255
        });
        if !is_path {
            return Err("its name is no path in a directory".to_owned());
        }
        if path == STEP {
            return Err("the coordinate of steps has this name".to_owned());
        }
        let lengths = |array: &String| *path == lengths_of(array) || *array == lengths_of(path);
        if let Some(array) = self.arrays.keys().find(|array| lengths(array)) {
            return Err(format!(
                "the lengths of {array:?}, or of this one, would have the name"
            ));
        }
        let above: Vec<&str> = path.match_indices('/').map(|(at, _)| &path[..at]).collect();
        if let Some(array) = above
            .iter()
            .find(|one| self.arrays.contains_key(**one) || **one == STEP)
        {
            return Err(format!("{array:?} is an array, in which there is no other"));
        }
        if self.groups.contains(path) {
            return Err("there are arrays below its name".to_owned());
        }
        self.groups.extend(above.into_iter().map(str::to_owned));
        let kind = Stored::of(item.dtype);
        let mut attributes = Map::new();
        let mut dimensions = None;
        for (name, value) in view.attributes().iter() {
            match name.rsplit_once('/') {
                Some((owner, DIMENSIONS)) if owner == item.variable => {
                    let names = value.as_texts().unwrap_or_default();
                    if names.len() == item.shape.len() {
                        dimensions = Some(names.iter().map(|&name| name.to_owned()).collect());
                    }
                }
                Some((owner, own)) if owner == item.variable => {
                    let value = super::choice::parsed(&attribute_json(value));
                    attributes.insert(own.to_owned(), value);
                }
                _ => {}
            }
        }
        attributes.insert("dtype".to_owned(), json!(item.dtype.as_str()));
        if let Some(units) = &kind.units {
            attributes.entry("units").or_insert_with(|| json!(units));
        }
        let chunk = match item.from {
            Source::Values => item.shape.iter().map(|length| (*length).max(1)).collect(),
            _ => chunk_shape(&item.shape, u64::from(item.dtype.item_bytes())),
        };
        Ok(Grown {
            kind,
            shape: item.shape.clone(),
            chunk,
            lengths: Lengths::Alike {
                steps: Vec::new(),
                lengths: item.shape.clone(),
            },
            dimensions,
            attributes,
        })
    }

    /// Says how long an array is by now, and, if it differs, how long it was in each step.
    fn describe(&self, path: &str) -> Result<(), Problem> {
        let grown = &self.arrays[path];
        let base = path.replace('/', "_");
        let named = |at: usize| match &grown.dimensions {
            Some(names) => names[at].clone(),
            None => format!("{base}_dim_{at}"),
        };
        let mut shape = vec![self.steps];
        let mut chunk = vec![1];
        let mut dimensions = vec![STEP.to_owned()];
        shape.extend(&grown.shape);
        chunk.extend(&grown.chunk);
        dimensions.extend((0..grown.shape.len()).map(named));
        if grown.kind.is_bytes {
            let item = u64::from(grown.kind.dtype.item_bytes());
            shape.push(item);
            chunk.push(item);
            dimensions.push(format!("{base}_bytes"));
        }
        let attributes = &grown.attributes;
        if matches!(grown.lengths, Lengths::Written) {
            let path = lengths_of(path);
            let count = grown.shape.len() as u64;
            let names = [STEP.to_owned(), format!("{base}_dimensions")];
            let kind = Stored::of(&int64());
            let told = metadata(
                &kind,
                &[self.steps, count],
                &[1, count],
                &names,
                &Map::new(),
            );
            write(
                &self.root.join(path).join(METADATA),
                told.to_string().as_bytes(),
            )?;
        }
        let told = metadata(&grown.kind, &shape, &chunk, &dimensions, attributes);
        write(
            &self.root.join(path).join(METADATA),
            told.to_string().as_bytes(),
        )
    }
}

/// Where the lengths of an array are that differ from step to step.
fn lengths_of(path: &str) -> String {
    format!("{path}_lengths")
}

/// The lengths that are to be written: those of a step, and of all before it if it is the first one that
/// has others.
fn lengths_to_write(known: &mut Lengths, step: u64, shape: &[u64]) -> Vec<(u64, Vec<u64>)> {
    match known {
        Lengths::Alike { steps, lengths } if lengths == shape => {
            steps.push(step);
            Vec::new()
        }
        Lengths::Alike { steps, lengths } => {
            let before = steps.iter().map(|step| (*step, lengths.clone()));
            let all = before.chain([(step, shape.to_vec())]).collect();
            *known = Lengths::Written;
            all
        }
        Lengths::Written => vec![(step, shape.to_vec())],
    }
}

fn int64() -> DType {
    DType::parse("<i8").expect("a type of NumPy")
}

fn metadata(
    kind: &Stored,
    shape: &[u64],
    chunk: &[u64],
    dimensions: &[String],
    attributes: &Map<String, Value>,
) -> Value {
    json!({
        "zarr_format": 3,
        "node_type": "array",
        "shape": shape,
        "data_type": kind.name,
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": chunk}},
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
        "fill_value": kind.fill,
        "codecs": kind.codecs,
        "dimension_names": dimensions,
        "attributes": attributes,
    })
}

/// A chunk's lengths: all of a step, or a half along the first dimensions again and again.
fn chunk_shape(shape: &[u64], item: u64) -> Vec<u64> {
    let mut chunk: Vec<u64> = shape.iter().map(|length| (*length).max(1)).collect();
    let bytes = |chunk: &[u64]| {
        chunk
            .iter()
            .fold(item, |all, length| all.saturating_mul(*length))
    };
    while bytes(&chunk) > CHUNK_BYTES_MAX {
        match chunk.iter_mut().find(|length| **length > 1) {
            Some(length) => *length = length.div_ceil(2),
            None => break,
        }
    }
    chunk
}

/// The indices of all chunks that a shape touches, or nothing if they are too many.
fn chunks_of(shape: &[u64], chunk: &[u64]) -> Option<Vec<Vec<u64>>> {
    let mut all = vec![Vec::with_capacity(shape.len())];
    for (length, chunk) in shape.iter().zip(chunk) {
        let count = length.div_ceil(*chunk);
        if (all.len() as u64).saturating_mul(count) > CHUNKS_MAX {
            return None;
        }
        all = all
            .iter()
            .flat_map(|before| (0..count).map(|index| [before.as_slice(), &[index]].concat()))
            .collect();
    }
    Some(all)
}

/// The elements of a box of a variable; of texts a whole chunk, as Zarr's codec `vlen-utf8` has them.
fn read(
    view: &StepView,
    item: &Item<'_>,
    ranges: &[Range],
    chunk: &[u64],
) -> Result<Vec<u8>, StepError> {
    let along = || ranges.iter().copied().map(Along::Range).collect::<Vec<_>>();
    match item.from {
        Source::Values => {
            let values = view.values(item.variable)?;
            // A value of all ranks is the first one's.
            let (start, count) = ranges.first().map_or((0, 1), |one| (one.start, one.count));
            let values = values.iter().skip(start as usize).take(count as usize);
            if !item.dtype.is_text() {
                return Ok(values.flat_map(|value| value.iter().copied()).collect());
            }
            let length = |bytes: usize| u32::try_from(bytes).unwrap_or(u32::MAX).to_le_bytes();
            let whole = chunk.iter().product::<u64>() as usize;
            let mut encoded = length(whole).to_vec();
            let empty = bytes::Bytes::new();
            for value in values.chain(std::iter::repeat(&empty)).take(whole) {
                encoded.extend(length(value.len()));
                encoded.extend_from_slice(value);
            }
            Ok(encoded)
        }
        Source::Whole => Ok(view
            .get(item.variable, &Selection::Box(along()))?
            .data
            .to_vec()),
        Source::Block(block) => {
            let along = along();
            let selection = Selection::BlockBox { block, along };
            Ok(view.get(item.variable, &selection)?.data.to_vec())
        }
    }
}

/// A chunk of full size, in whose beginning an array of `count` stands.
fn padded(data: Vec<u8>, count: &[u64], chunk: &[u64], fill: &[u8]) -> Vec<u8> {
    if count == chunk {
        return data;
    }
    let item = fill.len();
    let whole = chunk.iter().product::<u64>() as usize;
    let mut padded = fill.repeat(whole);
    let row = count.last().map_or(1, |length| *length as usize) * item;
    if row == 0 {
        return padded;
    }
    for (number, from) in data.chunks_exact(row).enumerate() {
        let (mut left, mut at, mut stride) = (number as u64, 0, chunk.last().copied().unwrap_or(1));
        for (length, width) in count.iter().zip(chunk).rev().skip(1) {
            at += left % length * stride;
            left /= length;
            stride *= width;
        }
        let at = at as usize * item;
        padded[at..at + row].copy_from_slice(from);
    }
    padded
}

/// A file, whole or not at all.
fn write(path: &Path, bytes: &[u8]) -> Result<(), Problem> {
    let fail = |error| Problem::Write(path.to_owned(), error);
    let directory = path.parent().expect("it is below the root");
    fs::create_dir_all(directory).map_err(fail)?;
    let unfinished = path.with_extension("unfinished");
    fs::write(&unfinished, bytes).map_err(fail)?;
    fs::rename(&unfinished, path).map_err(fail)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrays_stand_in_the_beginning_of_a_chunk() {
        let padded = |count: &[u64], chunk: &[u64]| {
            let data: Vec<u8> = (1..=count.iter().product::<u64>() as u8).collect();
            super::padded(data, count, chunk, &[0])
        };
        assert_eq!(padded(&[2, 2], &[2, 2]), [1, 2, 3, 4]);
        assert_eq!(padded(&[2, 2], &[3, 3]), [1, 2, 0, 3, 4, 0, 0, 0, 0]);
        assert_eq!(
            padded(&[2, 1, 2], &[2, 2, 3]),
            [1, 2, 0, 0, 0, 0, 3, 4, 0, 0, 0, 0]
        );
        assert_eq!(padded(&[0, 2], &[1, 2]), [0, 0]);
    }

    #[test]
    fn large_variables_have_several_chunks() {
        assert_eq!(chunk_shape(&[4, 0, 7], 8), [4, 1, 7]);
        assert_eq!(chunk_shape(&[1, 1 << 10, 1 << 20], 8), [1, 8, 1 << 20]);
        assert_eq!(
            chunks_of(&[5, 3], &[2, 3]).unwrap(),
            [[0, 0], [1, 0], [2, 0]]
        );
        assert_eq!(chunks_of(&[0, 3], &[1, 3]).unwrap(), Vec::<Vec<u64>>::new());
        assert_eq!(chunks_of(&[u64::MAX, u64::MAX], &[1, 1]), None);
    }
}

//! `thalweg.Driver`.

use crate::callbacks::Callbacks;
use crate::connection::{Connection, Embedded, From};
use crate::describe;
use crate::options::{durability, invalid};
use crate::plugins::PythonPlugins;
use crate::topic::Topic;
use crate::{coroutines, error, json, wait};
use bytes::Bytes;
use client::{ClientError, DriverOptions, Endpoint};
use fabric::Shm;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyDict, PyList, PyString, PyTuple};
use server::{Level, LevelFilter, ServerLog};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use wire::ErrorCode;
use wire::message::PartitionStorage;

/// A connection to a server, from which topics come.
///
/// `Driver("thalweg.json")` connects by the group file that `thalweg serve`
/// writes, and `Driver()` by the one that the environment names
/// (`THALWEG_GROUP_FILE`), or by `thalweg.json`; a `thalweg://` URL, in such a file, as `address` or in
/// `THALWEG_URL`, is all that it needs; `Driver(address="tcp://host:port", token=…)` without one, the token
/// being the group file's, as bytes or hexadecimal; `Driver.embedded(path)`
/// runs the server in this process.
///
/// One driver serves a whole program: it may be used by all threads, and in
/// children after `os.fork()`, which make connections of their own. It may be
/// pickled, as may topics, producers, consumers and requesters: in another
/// process the like is opened, with a connection of its own, when it is first
/// used; a pickle holds the token, if one was given. A driver
/// reconnects by itself, to a server that was restarted, too. Use it in a
/// `with` block, or call `close`: both wait until everything that was pushed
/// is acknowledged, as the end of the interpreter does.
///
/// - `credential`: a file with a token, as `thalweg token new` makes it: who
///   the program is, in place of the group file's token. By default the file that
///   `THALWEG_CREDENTIAL` names, if it names one. The file is read for each connection,
///   and before the token expires: a new token in it goes on. A minute before the
///   end, the logger `thalweg` has a warning.
/// - `namespace`: the namespace of all names; empty is the default one, or, with a
///   credential, the project that it is for.
/// - `client_name`: for the server's log and `thalweg status`.
/// - `connect_timeout`: seconds until the first connection has to be there; a
///   group file that is not there yet is waited for as long. By default 10, and
///   a group file that is not there is an error at once.
/// - `request_timeout`: seconds that the server may take over a request.
/// - `reconnect_timeout`: for how many seconds a lost server may be away before
///   pulls and iteration raise `Unreachable`; None is for ever. Whoever waits
///   without a deadline meanwhile is logged every 10 s as a warning of the
///   logger `thalweg`, and when it waits once more after that, that it goes on.
/// - `memory_bytes_max`: bytes that producers and consumers hold together at
///   most, 512 MiB by default. Each has a share: what it wants, or a quarter of
///   what is left; where that is less than a 512th of all, each further one
///   has a 512th (64 KiB to 1 MiB), beyond the bound.
/// - `stripes`: how many connections to the server there may be, 1 to 16, which carry
///   its bytes together, over `tcp://` and `tls://`: for a long line on which one does
///   not reach the rate of the line. They are opened one at a time, while that helps.
///
/// Raises `Unreachable`, `WrongServer`, `NotAllowed`, `Timeout`.
#[pyclass(frozen, weakref, module = "thalweg._thalweg", name = "Driver")]
pub struct Driver {
    connection: Arc<Connection>,
}

impl Driver {
    /// Makes a call that blocks, with a driver that is open.
    fn call<T: Send + 'static>(
        &self,
        py: Python<'_>,
        call: impl FnOnce(&client::Driver) -> Result<T, ClientError> + Send + 'static,
    ) -> PyResult<T> {
        if self.connection.is_closed() {
            return Err(error::new(py, "Closed", "the driver is closed".into()));
        }
        let driver = self.connection.driver().clone();
        wait::interruptible(py, move || call(&driver))
    }

    /// [`Driver::call`] that makes topics or partitions: what there are too many of
    /// is what it was asked for.
    fn make<T: Send + 'static>(
        &self,
        py: Python<'_>,
        call: impl FnOnce(&client::Driver) -> Result<T, ClientError> + Send + 'static,
    ) -> PyResult<T> {
        let made = self.call(py, move |driver| match call(driver) {
            Err(ClientError::Server(reply)) if reply.code == ErrorCode::LimitExceeded => {
                Ok(Err(reply))
            }
            made => made.map(Ok),
        })?;
        made.map_err(|reply| error::raise_server(py, "InvalidTopic", &reply))
    }

    /// The driver of a connection, as another object.
    pub fn of(connection: Arc<Connection>) -> Self {
        Self { connection }
    }

    pub fn connection(&self) -> &Arc<Connection> {
        &self.connection
    }

    fn topic(&self, handle: client::TopicHandle) -> Topic {
        Topic::new(handle, Arc::clone(&self.connection))
    }
}

fn is_url(path: &Path) -> bool {
    let text = path.as_os_str().as_encoded_bytes();
    text.starts_with(client::url::SCHEME.as_bytes())
}

/// How long the first connection of an unpickled driver may take.
const CONNECT_TIMEOUT_S: f64 = 10.0;

/// The options that all ways to connect share.
struct Options<'a> {
    namespace: &'a str,
    client_name: Option<String>,
    connect_timeout: Option<f64>,
    request_timeout: f64,
    reconnect_timeout: Option<f64>,
    memory_bytes_max: Option<u64>,
    credential: Option<PathBuf>,
    stripes: u8,
}

fn driver_options(py: Python<'_>, given: Options<'_>) -> PyResult<DriverOptions> {
    json::prepare(py)?;
    let mut options = DriverOptions {
        namespace: given.namespace.to_owned(),
        plugins: Arc::new(PythonPlugins::from_environment()),
        stripes: given.stripes,
        ..DriverOptions::default()
    };
    let transports = (*options.transports).clone().with(Shm::default());
    options.transports = Arc::new(transports);
    options.client_name = match given.client_name {
        Some(name) => name,
        None => topic::fit_client_name(&program(py)?),
    };
    options.connect_timeout = wait::seconds("connect_timeout", given.connect_timeout)?;
    options.request_timeout = wait::number("request_timeout", given.request_timeout)?;
    options.reconnect_timeout = wait::seconds("reconnect_timeout", given.reconnect_timeout)?;
    options.on_waiting = Some(Arc::new(|waiting| log_warning(&waiting.to_string())));
    options.on_credential = Some(Arc::new(|ends| log_warning(&ends.to_string())));
    if given.credential.is_some() {
        options.credential = given.credential;
    }
    if let Some(bytes) = given.memory_bytes_max {
        options.memory_bytes_max = bytes;
    }
    Ok(options)
}

/// What nobody else hears goes to the logger `thalweg`: what a pull waits for that has no deadline,
/// and that a credential ends.
fn log_warning(line: &str) {
    Python::attach(|py| {
        let logger = || {
            py.import("logging")?
                .call_method1("getLogger", ("thalweg",))
        };
        let said = logger()
            .and_then(|logger: Bound<'_, PyAny>| logger.call_method1("warning", ("%s", line)));
        if let Err(reason) = said {
            reason.write_unraisable(py, None);
        }
    });
}

/// The name of the running program and its process id.
fn program(py: Python<'_>) -> PyResult<String> {
    let arguments: Vec<String> = py
        .import("sys")?
        .getattr("argv")?
        .extract()
        .unwrap_or_default();
    let program = arguments.first().map_or("", String::as_str);
    let program = program.rsplit('/').next().filter(|name| !name.is_empty());
    Ok(format!(
        "{} {}",
        program.unwrap_or("python"),
        std::process::id()
    ))
}

fn token_bytes(token: &Bound<'_, PyAny>) -> PyResult<Bytes> {
    if let Ok(bytes) = token.cast::<PyBytes>() {
        return Ok(Bytes::copy_from_slice(bytes.as_bytes()));
    }
    let bytes = match token.cast::<PyString>() {
        Ok(text) => token
            .py()
            .get_type::<PyBytes>()
            .call_method1("fromhex", (text,))?,
        Err(_) => {
            return Err(invalid(
                token.py(),
                "token is bytes or hexadecimal digits".into(),
            ));
        }
    };
    Ok(Bytes::copy_from_slice(bytes.cast::<PyBytes>()?.as_bytes()))
}

fn absolute<'py>(py: Python<'py>, path: &Path) -> PyResult<Bound<'py, PyAny>> {
    // MUNGE, in place of a credential's file, is none.
    if client::names_munge(path) {
        return Ok(path.as_os_str().into_pyobject(py)?.into_any());
    }
    py.import("os.path")?.call_method1("abspath", (path,))
}

/// How each of a number of partitions is stored.
fn storages(
    py: Python<'_>,
    partitions: Option<usize>,
    storage: Option<&Bound<'_, PyAny>>,
) -> PyResult<Vec<PartitionStorage>> {
    // Before there is a list of them.
    topic::check_partition_count(partitions.unwrap_or(1))
        .map_err(|error| error::new(py, "InvalidTopic", error.reason().to_owned()))?;
    let Some(storage) = storage else {
        return Ok(vec![kind_of("disk"); partitions.unwrap_or(1)]);
    };
    let Ok(list) = storage.cast::<PyList>() else {
        return Ok(vec![one_storage(storage)?; partitions.unwrap_or(1)]);
    };
    if partitions.is_some_and(|count| count != list.len()) {
        let message = format!(
            "{} partitions, but storage for {} is given",
            partitions.unwrap_or(0),
            list.len()
        );
        return Err(invalid(py, message));
    }
    list.iter().map(|storage| one_storage(&storage)).collect()
}

fn kind_of(kind: &str) -> PartitionStorage {
    PartitionStorage {
        kind: kind.to_owned(),
        config: String::new(),
    }
}

/// A kind, or the pair of a kind and its configuration.
fn one_storage(storage: &Bound<'_, PyAny>) -> PyResult<PartitionStorage> {
    if let Ok(kind) = storage.cast::<PyString>() {
        return Ok(kind_of(kind.to_str()?));
    }
    if let Ok(pair) = storage.cast::<PyTuple>()
        && let Ok((kind, config)) = pair.extract::<(String, Bound<'_, PyDict>)>()
    {
        return Ok(PartitionStorage {
            kind,
            config: json::text(
                config.as_any(),
                "the storage's configuration",
                "InvalidTopic",
            )?,
        });
    }
    let message = format!(
        "storage is \"disk\", \"memory\" or another kind, the pair of a kind and a dict with its \
         configuration, or a list of such; not {storage}"
    );
    Err(invalid(storage.py(), message))
}

/// A part of a definition that has no settings.
fn typed<'py>(py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyDict>> {
    let part = PyDict::new(py);
    part.set_item("type", name)?;
    Ok(part)
}

/// A part of a definition: the name of its type, or a `thalweg.Plugin`.
/// `None` for what is neither.
fn part<'py>(given: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyAny>>> {
    let py = given.py();
    if let Ok(name) = given.cast::<PyString>() {
        return Ok(Some(typed(py, name.to_str()?)?.into_any()));
    }
    let plugin = py.import("thalweg.plugins")?.getattr("Plugin")?;
    if !given.is_instance(&plugin)? {
        return Ok(None);
    }
    let part = typed(py, "plugin")?;
    part.set_item("name", given.getattr("name")?)?;
    part.set_item("options", given.getattr("options")?)?;
    Ok(Some(part.into_any()))
}

/// Warns where a topic that was there is not what `create_topic` asked for: of
/// `keys` of the definition `asked`, and of the number of partitions if given.
fn warn_of_differences(
    py: Python<'_>,
    handle: &client::TopicHandle,
    asked: &str,
    keys: &[String],
    partitions: Option<usize>,
) -> PyResult<()> {
    let loads = py.import("json")?.getattr("loads")?;
    let asked = loads.call1((asked,))?;
    let there = loads.call1((handle.definition_now().to_json(),))?;
    let mut differ = Vec::new();
    for key in keys {
        let asked = asked.call_method1("get", (key,))?;
        let there = there.call_method1("get", (key,))?;
        if !asked.eq(&there)? {
            let (asked, there) = (shortened(&asked)?, shortened(&there)?);
            differ.push(format!("{key} (asked {asked}, there {there})"));
        }
    }
    let there = handle.partitions().len();
    if let Some(asked) = partitions.filter(|&asked| asked != there) {
        differ.push(format!("partitions (asked {asked}, there {there})"));
    }
    if differ.is_empty() {
        return Ok(());
    }
    let message = format!(
        "topic {:?} was there and is opened as it is, which differs in {}; topic.alter(...) \
         changes retention and what else can be changed, topic.add_partitions(...) adds partitions",
        handle.name().to_string(),
        differ.join(", ")
    );
    let message = std::ffi::CString::new(message.replace('\0', "\\0"))?;
    let category = py.get_type::<pyo3::exceptions::PyUserWarning>();
    PyErr::warn(py, &category, &message, 1)
}

/// What Python says an object is, no longer than a warning has room for: a schema may be large.
fn shortened(object: &Bound<'_, PyAny>) -> PyResult<String> {
    const CHARACTERS_MAX: usize = 200;
    let text = object.repr()?.to_string();
    let Some((end, _)) = text.char_indices().nth(CHARACTERS_MAX) else {
        return Ok(text);
    };
    Ok(format!("{}…", &text[..end]))
}

/// Whether a dict is a validator, and not a schema: none of these is a type
/// of JSON's.
fn is_validator(given: &Bound<'_, PyAny>) -> PyResult<bool> {
    let Ok(given) = given.cast::<PyDict>() else {
        return Ok(false);
    };
    let kind = given.get_item("type")?;
    let kind = kind.and_then(|kind| kind.extract::<String>().ok());
    Ok(kind.is_some_and(|kind| topic::ValidatorKind::NAMES.contains(&&*kind)))
}

/// The settings of a server as text: a list has one for each entry.
fn setting_texts(settings: &Bound<'_, PyDict>) -> PyResult<Vec<(String, Vec<String>)>> {
    settings
        .iter()
        .map(|(key, value)| {
            let texts = match value.cast::<PyList>() {
                Ok(list) => list
                    .iter()
                    .map(|entry| setting_text(&entry))
                    .collect::<PyResult<_>>()?,
                Err(_) => vec![setting_text(&value)?],
            };
            Ok((key.extract()?, texts))
        })
        .collect()
}

fn setting_text(value: &Bound<'_, PyAny>) -> PyResult<String> {
    match value.cast::<PyBool>() {
        Ok(switch) => Ok(switch.is_true().to_string()),
        Err(_) => Ok(value.str()?.to_str()?.to_owned()),
    }
}

/// Where the lines of an embedded server go: to Python's logging.
fn server_log(py: Python<'_>) -> PyResult<ServerLog> {
    let callbacks = Callbacks::get(py)?;
    let logger = py
        .import("logging")?
        .call_method1("getLogger", ("thalweg.server",))?;
    let log = Arc::new(logger.getattr("log")?.unbind());
    Ok(ServerLog::new(LevelFilter::INFO, move |record| {
        let level = match record.level {
            Level::INFO => 20,
            _ => 30,
        };
        let (log, line) = (Arc::clone(&log), record.to_string());
        callbacks.call(Box::new(move |py| {
            if let Err(reason) = log.bind(py).call1((level, "%s", line)) {
                reason.write_unraisable(py, None);
            }
        }));
    }))
}

#[pymethods]
impl Driver {
    #[new]
    #[pyo3(signature = (group_file = None, *, address = None, token = None, credential = None,
                        namespace = "", client_name = None, connect_timeout = None, request_timeout = 120.0,
                        reconnect_timeout = None, memory_bytes_max = None, stripes = 1))]
    #[allow(clippy::too_many_arguments)]
    fn new(
        py: Python<'_>,
        group_file: Option<PathBuf>,
        address: Option<String>,
        token: Option<&Bound<'_, PyAny>>,
        credential: Option<PathBuf>,
        namespace: &str,
        client_name: Option<String>,
        connect_timeout: Option<f64>,
        request_timeout: f64,
        reconnect_timeout: Option<f64>,
        memory_bytes_max: Option<u64>,
        stripes: u8,
    ) -> PyResult<Self> {
        let (group_file, address) = match (group_file, address) {
            (None, None) => match client::url::usual_endpoint() {
                Endpoint::GroupFile(path) => (Some(path), None),
                Endpoint::Address { address, .. } => (None, Some(address)),
            },
            // A URL is no path.
            (Some(path), None) if is_url(&path) => (None, Some(path.display().to_string())),
            given => given,
        };
        let arguments = PyDict::new(py);
        if let Some(path) = &group_file {
            // Whoever gets it may run in another directory.
            arguments.set_item("group_file", absolute(py, path)?)?;
        }
        arguments.set_item("address", &address)?;
        arguments.set_item("token", token)?;
        let credential_path = credential.as_deref().map(|path| absolute(py, path));
        arguments.set_item("credential", credential_path.transpose()?)?;
        arguments.set_item("namespace", namespace)?;
        arguments.set_item("client_name", &client_name)?;
        // Whoever gets it may come while the server is started again.
        let connect_within = connect_timeout.unwrap_or(CONNECT_TIMEOUT_S);
        arguments.set_item("connect_timeout", connect_within)?;
        arguments.set_item("request_timeout", request_timeout)?;
        arguments.set_item("reconnect_timeout", reconnect_timeout)?;
        arguments.set_item("memory_bytes_max", memory_bytes_max)?;
        arguments.set_item("stripes", stripes)?;
        if token.is_some() && credential.is_some() {
            return Err(invalid(
                py,
                "a driver has a token or a credential, not both".into(),
            ));
        }
        let endpoint = match (group_file, address) {
            (Some(path), None) if token.is_none() => Endpoint::GroupFile(path),
            (None, Some(address)) => Endpoint::Address {
                address,
                token: token.map(token_bytes).transpose()?,
                directory: None,
            },
            _ => {
                let message = "a driver has the path of a group file, or an address, which may \
                               have a token";
                return Err(invalid(py, message.into()));
            }
        };
        let given = Options {
            namespace,
            client_name,
            connect_timeout,
            request_timeout,
            reconnect_timeout,
            memory_bytes_max,
            credential,
            stripes,
        };
        let options = driver_options(py, given)?;
        let driver = wait::interruptible(py, move || client::Driver::connect(endpoint, options))?;
        Ok(Self {
            connection: Connection::new(driver, From::Arguments(arguments.unbind())),
        })
    }

    /// Runs a server in this process, on the data directory `path`, and
    /// connects to it without a network: nobody else can.
    ///
    /// The directory is made if it is not there, and can be served by `thalweg
    /// serve` later. Closing the driver ends the server. What the server has
    /// to say goes to the logger `thalweg.server`. `settings` are those of
    /// `thalweg serve`, such as `{"memory_bytes_max": "1GiB"}`; the other
    /// arguments those of `Driver`. Not usable in a child after `os.fork()`.
    ///
    /// Raises `ServerError` if the server can't be started, for example
    /// because another one owns the directory.
    #[staticmethod]
    #[pyo3(signature = (path, *, settings = None, namespace = "", client_name = None,
                        connect_timeout = 10.0, request_timeout = 120.0,
                        reconnect_timeout = None, memory_bytes_max = None))]
    #[allow(clippy::too_many_arguments)]
    fn embedded(
        py: Python<'_>,
        path: PathBuf,
        settings: Option<&Bound<'_, PyDict>>,
        namespace: &str,
        client_name: Option<String>,
        connect_timeout: f64,
        request_timeout: f64,
        reconnect_timeout: Option<f64>,
        memory_bytes_max: Option<u64>,
    ) -> PyResult<Self> {
        let given = Options {
            namespace,
            client_name,
            connect_timeout: Some(connect_timeout),
            request_timeout,
            reconnect_timeout,
            memory_bytes_max,
            credential: None,
            stripes: 1,
        };
        let mut options = driver_options(py, given)?;
        // One for another server, that the environment names.
        options.credential = None;
        let settings = settings.map(setting_texts).transpose()?.unwrap_or_default();
        let log = server_log(py)?;
        let connection = wait::interruptible(py, move || {
            let server = match Embedded::start(path, &settings, log) {
                Ok(server) => server,
                Err(reason) => return Ok(Err(reason)),
            };
            let driver = client::Driver::connect(server.endpoint(), options)?;
            Ok(Ok((driver, server)))
        })?;
        match connection {
            Ok((driver, server)) => Ok(Self {
                connection: Connection::new(driver, From::Embedded(server)),
            }),
            Err(reason) => Err(error::new(py, "ServerError", reason)),
        }
    }

    /// Makes a topic, and opens it.
    ///
    /// - `partitions`: how many, 1 by default; 0 is allowed, for
    ///   `add_partitions` to fill. Each keeps the order of its events.
    /// - `storage`: how they are stored: `"disk"` or `"memory"`, the pair of a
    ///   kind and a dict with its configuration, or a list with one such for
    ///   each partition.
    /// - `validator`: what is checked of metadata: None nothing, `"json"` that
    ///   it is JSON, a dict that it matches this JSON Schema (draft 2020-12), or
    ///   `{"type": "eventbridge", "pattern": {...}}` that it matches the pattern.
    /// - `partition_selector`: `"round_robin"`, `"random"`, `"key_hash"` or
    ///   `"explicit"`; or a dict with its `type` and settings, such as
    ///   `{"type": "field_hash", "field": "sensor.id"}` or `{"type":
    ///   "field_range", "field": "energy", "boundaries": [0, 10, 100]}`.
    /// - `serializer`: `"json"`, `"msgpack"` for JSON that is stored and sent as
    ///   MessagePack, `"raw"` for metadata that is bytes, or `{"type": "schema",
    ///   "schema": {...}}` for JSON that is stored without what the schema says.
    /// - each of the three: a `Plugin`.
    /// - `durability`: what an acknowledgement survives: `"memory"` nothing,
    ///   `"written"` the death of the server, `"synced"` power loss; None is
    ///   the strongest that the storage allows.
    /// - `retention`: what is kept at most: the size of the topic, an age, or
    ///   both (`"40GB"`, `"7d"`, `"40GB,7d"`); or a dict of `total_bytes` of the
    ///   topic, and of each partition `bytes`, `age` or `age_ms`, `count`, sizes
    ///   as numbers or text such as `"512MiB"`. None keeps everything.
    /// - `keep_until_acknowledged`: names of consumers; what one of them has not
    ///   acknowledged is kept, whatever `retention` says. Without `retention`
    ///   the rest is dropped.
    /// - `overflow`: what happens when those consumers are so far behind that
    ///   `retention` would be exceeded: `"grow"`, `"block"`, `"reject"`,
    ///   `"drop_oldest"`, `"drop_newest"`, or a dict such as `{"type":
    ///   "sample", "one_in": 10}`.
    /// - `metadata_bytes_max`: limit of an event's metadata, 1 MiB by default.
    /// - `data_block_bytes`: how much data one checksum covers, 4096 by default.
    /// - `validate_on_server`: whether the server checks metadata, too.
    /// - `spread`: whether the partitions are spread over the nodes of a cluster:
    ///   each is a topic by itself, `"NAME/INDEX"`, and programs see one topic.
    /// - `placement`: labels of the servers of a cluster on which it is made:
    ///   `{"rank": 1}`, `{"host": "node7"}`, or the operator's own; None is any.
    /// - `beside`: the name of a topic on whose shard of the server this one is
    ///   made, as that of the dead letters of its queues has to be; None leaves
    ///   that to the name. Raises `UnknownTopic` if there is none.
    /// - `exist_ok`: if there is a topic of that name, it is opened as it is.
    ///   A `UserWarning` names what differs of what was given; `Topic.alter`
    ///   changes it.
    ///
    /// Raises `TopicExists`, and `InvalidTopic` with the reason; nothing is
    /// made then.
    #[pyo3(signature = (name, *, partitions = None, storage = None, validator = None,
                        partition_selector = None, serializer = None, durability = None,
                        retention = None, keep_until_acknowledged = None,
                        overflow = None, metadata_bytes_max = None, data_block_bytes = None,
                        validate_on_server = false, spread = false, placement = None,
                        beside = None, exist_ok = false))]
    #[allow(clippy::too_many_arguments)]
    fn create_topic(
        &self,
        py: Python<'_>,
        name: String,
        partitions: Option<usize>,
        storage: Option<&Bound<'_, PyAny>>,
        validator: Option<&Bound<'_, PyAny>>,
        partition_selector: Option<&Bound<'_, PyAny>>,
        serializer: Option<&Bound<'_, PyAny>>,
        durability: Option<&str>,
        retention: Option<&Bound<'_, PyAny>>,
        keep_until_acknowledged: Option<Vec<String>>,
        overflow: Option<&Bound<'_, PyAny>>,
        metadata_bytes_max: Option<u64>,
        data_block_bytes: Option<u64>,
        validate_on_server: bool,
        spread: bool,
        placement: Option<&Bound<'_, PyDict>>,
        beside: Option<String>,
        exist_ok: bool,
    ) -> PyResult<Topic> {
        let storages = storages(py, partitions, storage)?;
        let definition = PyDict::new(py);
        if let Some(validator) = validator {
            let part = match part(validator)? {
                Some(part) => part,
                None if is_validator(validator)? => validator.clone(),
                None => {
                    let part = typed(py, "schema")?;
                    part.set_item("schema", validator)?;
                    part.into_any()
                }
            };
            definition.set_item("validator", part)?;
        }
        for (key, given) in [
            ("partition_selector", partition_selector),
            ("serializer", serializer),
            ("overflow", overflow),
        ] {
            if let Some(given) = given {
                definition.set_item(key, part(given)?.unwrap_or_else(|| given.clone()))?;
            }
        }
        // Checked here for its own error, which names the three levels.
        if let Some(level) = self::durability(py, durability)? {
            definition.set_item("durability", level.to_string())?;
        }
        if let Some(retention) = retention {
            definition.set_item("retention", retention)?;
        }
        if let Some(consumers) = keep_until_acknowledged {
            definition.set_item("keep_until_acknowledged", consumers)?;
        }
        if let Some(bytes) = metadata_bytes_max {
            definition.set_item("metadata_bytes_max", bytes)?;
        }
        if let Some(bytes) = data_block_bytes {
            definition.set_item("data_block_bytes", bytes)?;
        }
        if validate_on_server {
            definition.set_item("validate_on_server", true)?;
        }
        if let Some(placement) = placement {
            definition.set_item("placement", placement)?;
        }
        let keys: Vec<String> = definition.keys().extract()?;
        let definition = json::text(definition.as_any(), "the definition", "InvalidTopic")?;
        let definition = topic::Definition::from_json(&definition)
            .map_err(|reason| error::new(py, "InvalidTopic", reason.to_string()))?;
        let asked = definition.to_json();
        let (handle, was_there) = self.make(py, move |driver| {
            let created = match &beside {
                Some(other) => {
                    let other = driver.open_topic(other)?;
                    driver.create_topic_beside(&other, &name, &definition, &storages)
                }
                None if spread => driver.create_spread_topic(&name, &definition, &storages),
                None => driver.create_topic(&name, &definition, &storages),
            };
            match created {
                Err(ClientError::Server(reply))
                    if exist_ok && reply.code == wire::ErrorCode::TopicExists =>
                {
                    driver.open_topic(&name).map(|handle| (handle, true))
                }
                made => made.map(|handle| (handle, false)),
            }
        })?;
        if was_there {
            warn_of_differences(py, &handle, &asked, &keys, partitions)?;
        }
        Ok(self.topic(handle))
    }

    /// Opens a topic. Raises `UnknownTopic`.
    #[pyo3(signature = (name, /))]
    fn open_topic(&self, py: Python<'_>, name: String) -> PyResult<Topic> {
        let handle = self.call(py, move |driver| driver.open_topic(&name))?;
        Ok(self.topic(handle))
    }

    /// Whether there is a topic of that name.
    #[pyo3(signature = (name, /))]
    fn topic_exists(&self, py: Python<'_>, name: String) -> PyResult<bool> {
        self.call(py, move |driver| driver.topic_exists(&name))
    }

    /// Deletes a topic with its events, cursors and gaps. Raises `UnknownTopic`.
    #[pyo3(signature = (name, /))]
    pub fn delete_topic(&self, py: Python<'_>, name: String) -> PyResult<()> {
        self.call(py, move |driver| driver.delete_topic(&name))
    }

    /// All topics of the namespace, a list of `TopicDescription` by name.
    fn list_topics<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyAny>>> {
        let topics = self.call(py, |driver| driver.list_topics())?;
        topics
            .into_iter()
            .map(|topic| describe::topic(py, topic))
            .collect()
    }

    /// The nodes of the server's cluster, a list of `NodeDescription` by
    /// number; empty if the server is alone. Raises `NotAllowed` if this driver
    /// may not administer the server.
    fn list_nodes<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyAny>>> {
        let nodes = self.call(py, |driver| driver.list_nodes())?;
        nodes.iter().map(|node| describe::node(py, node)).collect()
    }

    /// A topic's definition and partitions as they are now, a `TopicDescription`.
    #[pyo3(signature = (name, /))]
    fn describe_topic<'py>(&self, py: Python<'py>, name: String) -> PyResult<Bound<'py, PyAny>> {
        describe::topic(
            py,
            self.call(py, move |driver| driver.describe_topic(&name))?,
        )
    }

    /// Adds `partitions` partitions to a live topic; `storage` as for
    /// `create_topic`, and so is `placement`, for a topic that is spread. Producers
    /// and consumers that are open go on, and use them.
    #[pyo3(signature = (name, partitions = None, *, storage = None, placement = None))]
    fn add_partitions<'py>(
        &self,
        py: Python<'py>,
        name: String,
        partitions: Option<usize>,
        storage: Option<&Bound<'py, PyAny>>,
        placement: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let storages = storages(py, partitions, storage)?;
        let mut wanted = topic::Placement::default();
        for (label, value) in placement.into_iter().flatten() {
            let pushed = wanted.push(&label.extract::<String>()?, &value.str()?.to_string());
            pushed.map_err(|reason| error::new(py, "InvalidTopic", reason))?;
        }
        let described = self.make(py, move |driver| {
            driver.add_placed_partitions(&name, &storages, &wanted)
        })?;
        describe::topic(py, described)
    }

    /// Changes the definition of a live topic: `validator`, `retention`,
    /// `keep_until_acknowledged`, `overflow` and `metadata_bytes_max`, each as in a topic's
    /// definition (`{"type": "json"}`), or None for its default. What is not
    /// named stays. Durable when it returns; a new validator holds for
    /// producers that are open as soon as they have looked, within ten seconds
    /// or when they refuse an event.
    ///
    /// Raises `UnknownTopic`, and `InvalidTopic` with the reason; nothing is
    /// changed then.
    #[pyo3(signature = (name, /, **changes))]
    pub fn alter_topic<'py>(
        &self,
        py: Python<'py>,
        name: String,
        changes: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let changes = match changes {
            Some(changes) => json::text(changes.as_any(), "the definition", "InvalidTopic")?,
            None => "{}".to_owned(),
        };
        let described = self.call(py, move |driver| driver.alter_topic(&name, &changes))?;
        describe::topic(py, described)
    }

    /// The cursors of a topic's consumers, or of one: a list of `Cursor`.
    #[pyo3(signature = (topic, consumer = ""))]
    pub fn cursors<'py>(
        &self,
        py: Python<'py>,
        topic: &Bound<'py, Topic>,
        consumer: &str,
    ) -> PyResult<Vec<Bound<'py, PyAny>>> {
        let handle = topic.get().handle().clone();
        let consumer = consumer.to_owned();
        let cursors = self.call(py, move |driver| driver.cursors(&handle, &consumer))?;
        cursors
            .into_iter()
            .map(|cursor| describe::cursor(py, cursor))
            .collect()
    }

    /// Moves a consumer's durable cursor in one partition, backwards too, to
    /// the event with the offset or `EventId` `position`. For consumers that
    /// are not running; a running one has `Consumer.seek`.
    #[pyo3(signature = (topic, consumer, partition, position))]
    fn seek(
        &self,
        py: Python<'_>,
        topic: &Bound<'_, Topic>,
        consumer: String,
        partition: u32,
        position: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let index = wire::PartitionIndex(partition);
        let position = topic.get().position(index, position)?;
        let handle = topic.get().handle().clone();
        self.call(py, move |driver| {
            driver.seek(&handle, &consumer, &[(index, position)])
        })
    }

    /// Forgets all cursors of a consumer of a topic.
    #[pyo3(signature = (topic, consumer))]
    pub fn delete_consumer(
        &self,
        py: Python<'_>,
        topic: &Bound<'_, Topic>,
        consumer: String,
    ) -> PyResult<()> {
        let handle = topic.get().handle().clone();
        self.call(py, move |driver| driver.delete_consumer(&handle, &consumer))
    }

    /// Every loss recorded for a topic: a list of `Gap`.
    #[pyo3(signature = (name, /))]
    pub fn gaps<'py>(&self, py: Python<'py>, name: String) -> PyResult<Vec<Bound<'py, PyAny>>> {
        let gaps = self.call(py, move |driver| driver.gaps(&name))?;
        gaps.into_iter()
            .map(|(partition, gap)| describe::gap(py, partition, gap))
            .collect()
    }

    /// The server's state, as a dict.
    fn status<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let text = self.call(py, |driver| driver.status())?;
        json::loads(py, text.as_bytes(), || "the server's status".into())
    }

    /// Has the server drain and end.
    fn shutdown_server(&self, py: Python<'_>) -> PyResult<()> {
        self.call(py, |driver| driver.shutdown_server())
    }

    /// Waits until everything that was pushed is acknowledged, up to `timeout`
    /// seconds, and closes the connection, with all producers and consumers.
    /// A second call does nothing.
    #[pyo3(signature = (timeout = 120.0))]
    fn close(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<()> {
        let timeout = wait::seconds("timeout", timeout)?.unwrap_or(wait::FOREVER);
        match self.connection.begin_close() {
            Some(closing) => wait::interruptible(py, move || closing.finish(timeout)),
            None => Ok(()),
        }
    }

    /// Whether `close` was called.
    #[getter]
    fn closed(&self) -> bool {
        self.connection.is_closed()
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    #[pyo3(signature = (exc_type = None, exc_value = None, traceback = None, /))]
    fn __exit__(
        &self,
        py: Python<'_>,
        exc_type: Option<&Bound<'_, PyAny>>,
        exc_value: Option<&Bound<'_, PyAny>>,
        traceback: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let _ = (exc_type, exc_value, traceback);
        self.close(py, Some(120.0))
    }

    fn __aenter__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        coroutines::enter(slf)
    }

    #[pyo3(signature = (exc_type = None, exc_value = None, traceback = None, /))]
    fn __aexit__<'py>(
        slf: &Bound<'py, Self>,
        exc_type: Option<&Bound<'_, PyAny>>,
        exc_value: Option<&Bound<'_, PyAny>>,
        traceback: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let _ = (exc_type, exc_value, traceback);
        coroutines::leave(slf)
    }

    /// How it connects: where this is unpickled there is one driver for all
    /// that were pickled of it.
    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let Some(arguments) = &self.connection.arguments else {
            return Err(PyTypeError::new_err(
                "a driver with an embedded server can't be pickled: other processes can't reach it",
            ));
        };
        let connect = py.import("thalweg._pickled")?.getattr("connect")?;
        (connect, (arguments,)).into_pyobject(py)
    }

    fn __repr__(&self) -> String {
        let state = if self.closed() { "closed" } else { "open" };
        format!("Driver({state})")
    }
}

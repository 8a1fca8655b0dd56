//! What the driver answers: `CUresult`, with the names that recordings use.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// A driver result code. Codes without a name here are kept and printed as numbers, so that a newer driver's answers survive.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct CuResult(pub u32);

macro_rules! results {
    ($($(#[$doc:meta])* $name:ident = $code:literal,)*) => {
        impl CuResult {
            $($(#[$doc])* pub const $name: Self = Self($code);)*
        }
        const NAMES: &[(u32, &str)] = &[$(($code, stringify!($name)),)*];
    };
}

results! {
    /// The call did what it was asked.
    SUCCESS = 0,
    /// An argument breaks a rule.
    INVALID_VALUE = 1,
    /// The device has no memory left.
    OUT_OF_MEMORY = 2,
    /// The driver has not been initialised.
    NOT_INITIALIZED = 3,
    /// No context is current, or it is not valid any more.
    INVALID_CONTEXT = 201,
    /// A handle is of the wrong kind or not valid.
    INVALID_HANDLE = 400,
    /// The object is in no state to do this.
    ILLEGAL_STATE = 401,
    /// The query would drop information, such as edge data.
    LOSSY_QUERY = 402,
    /// The work that was asked about is not finished.
    NOT_READY = 600,
    /// Work touched memory that is not mapped.
    ILLEGAL_ADDRESS = 700,
    /// The operation is not permitted.
    NOT_PERMITTED = 800,
    /// The operation is not supported here.
    NOT_SUPPORTED = 801,
    /// The call is not permitted while a stream is capturing.
    STREAM_CAPTURE_UNSUPPORTED = 900,
    /// The capture was broken by an earlier call.
    STREAM_CAPTURE_INVALIDATED = 901,
    /// The call would have merged two captures.
    STREAM_CAPTURE_MERGE = 902,
    /// The capture was not begun on this stream.
    STREAM_CAPTURE_UNMATCHED = 903,
    /// A fork was not joined to the stream that began the capture.
    STREAM_CAPTURE_UNJOINED = 904,
    /// A dependency would have crossed the border of the capture.
    STREAM_CAPTURE_ISOLATION = 905,
    /// The legacy stream would have depended on a capturing blocking stream.
    STREAM_CAPTURE_IMPLICIT = 906,
    /// The event was last recorded in a capture.
    CAPTURED_EVENT = 907,
    /// The capture was begun by another thread.
    STREAM_CAPTURE_WRONG_THREAD = 908,
    /// An executable graph could not be updated.
    GRAPH_EXEC_UPDATE_FAILURE = 910,
    /// The driver has no better name for what went wrong.
    UNKNOWN = 999,
}

/// Results that nothing here answers, so that recordings which hold them can be read and printed.
const OTHERS: &[(u32, &str)] = &[
    (4, "DEINITIALIZED"),
    (5, "PROFILER_DISABLED"),
    (34, "STUB_LIBRARY"),
    (46, "DEVICE_UNAVAILABLE"),
    (100, "NO_DEVICE"),
    (101, "INVALID_DEVICE"),
    (102, "DEVICE_NOT_LICENSED"),
    (200, "INVALID_IMAGE"),
    (202, "CONTEXT_ALREADY_CURRENT"),
    (205, "MAP_FAILED"),
    (206, "UNMAP_FAILED"),
    (207, "ARRAY_IS_MAPPED"),
    (208, "ALREADY_MAPPED"),
    (209, "NO_BINARY_FOR_GPU"),
    (210, "ALREADY_ACQUIRED"),
    (211, "NOT_MAPPED"),
    (212, "NOT_MAPPED_AS_ARRAY"),
    (213, "NOT_MAPPED_AS_POINTER"),
    (214, "ECC_UNCORRECTABLE"),
    (215, "UNSUPPORTED_LIMIT"),
    (216, "CONTEXT_ALREADY_IN_USE"),
    (217, "PEER_ACCESS_UNSUPPORTED"),
    (218, "INVALID_PTX"),
    (219, "INVALID_GRAPHICS_CONTEXT"),
    (220, "NVLINK_UNCORRECTABLE"),
    (221, "JIT_COMPILER_NOT_FOUND"),
    (222, "UNSUPPORTED_PTX_VERSION"),
    (223, "JIT_COMPILATION_DISABLED"),
    (224, "UNSUPPORTED_EXEC_AFFINITY"),
    (225, "UNSUPPORTED_DEVSIDE_SYNC"),
    (300, "INVALID_SOURCE"),
    (301, "FILE_NOT_FOUND"),
    (302, "SHARED_OBJECT_SYMBOL_NOT_FOUND"),
    (303, "SHARED_OBJECT_INIT_FAILED"),
    (304, "OPERATING_SYSTEM"),
    (500, "NOT_FOUND"),
    (701, "LAUNCH_OUT_OF_RESOURCES"),
    (702, "LAUNCH_TIMEOUT"),
    (703, "LAUNCH_INCOMPATIBLE_TEXTURING"),
    (704, "PEER_ACCESS_ALREADY_ENABLED"),
    (705, "PEER_ACCESS_NOT_ENABLED"),
    (708, "PRIMARY_CONTEXT_ACTIVE"),
    (709, "CONTEXT_IS_DESTROYED"),
    (710, "ASSERT"),
    (711, "TOO_MANY_PEERS"),
    (712, "HOST_MEMORY_ALREADY_REGISTERED"),
    (713, "HOST_MEMORY_NOT_REGISTERED"),
    (714, "HARDWARE_STACK_ERROR"),
    (715, "ILLEGAL_INSTRUCTION"),
    (716, "MISALIGNED_ADDRESS"),
    (717, "INVALID_ADDRESS_SPACE"),
    (718, "INVALID_PC"),
    (719, "LAUNCH_FAILED"),
    (720, "COOPERATIVE_LAUNCH_TOO_LARGE"),
    (802, "SYSTEM_NOT_READY"),
    (803, "SYSTEM_DRIVER_MISMATCH"),
    (804, "COMPAT_NOT_SUPPORTED_ON_DEVICE"),
    (805, "MPS_CONNECTION_FAILED"),
    (806, "MPS_RPC_FAILURE"),
    (807, "MPS_SERVER_NOT_READY"),
    (808, "MPS_MAX_CLIENTS_REACHED"),
    (809, "MPS_MAX_CONNECTIONS_REACHED"),
    (810, "MPS_CLIENT_TERMINATED"),
    (811, "CDP_NOT_SUPPORTED"),
    (812, "CDP_VERSION_MISMATCH"),
    (909, "TIMEOUT"),
    (911, "EXTERNAL_DEVICE"),
    (912, "INVALID_CLUSTER_SIZE"),
    (913, "FUNCTION_NOT_LOADED"),
    (914, "INVALID_RESOURCE_TYPE"),
    (915, "INVALID_RESOURCE_CONFIGURATION"),
];

impl CuResult {
    /// Whether this is `SUCCESS`.
    pub fn is_success(self) -> bool {
        self == Self::SUCCESS
    }

    /// The name without its `CUDA_ERROR_` prefix, if this crate knows the code.
    pub fn name(self) -> Option<&'static str> {
        NAMES.iter().chain(OTHERS).find(|(code, _)| *code == self.0).map(|(_, name)| *name)
    }

    /// The code of a name, with or without its `CUDA_ERROR_` prefix.
    pub fn from_name(name: &str) -> Option<Self> {
        let name =
            name.strip_prefix("CUDA_ERROR_").or_else(|| name.strip_prefix("CUDA_")).unwrap_or(name);
        NAMES.iter().chain(OTHERS).find(|(_, n)| *n == name).map(|(code, _)| Self(*code))
    }
}

impl fmt::Display for CuResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "CUDA_ERROR({})", self.0),
        }
    }
}

impl Serialize for CuResult {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for CuResult {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let name = std::borrow::Cow::<str>::deserialize(deserializer)?;
        let number = || name.strip_prefix("CUDA_ERROR(")?.strip_suffix(')')?.parse().ok().map(Self);
        Self::from_name(&name)
            .or_else(number)
            .ok_or_else(|| de::Error::custom(format!("unknown driver result `{name}`")))
    }
}

#[cfg(test)]
mod tests {
    use super::CuResult;

    #[test]
    fn names_and_numbers_survive_a_round_trip() {
        for code in [CuResult::SUCCESS, CuResult::STREAM_CAPTURE_UNJOINED, CuResult(123_456)] {
            let text = serde_json::to_string(&code).unwrap();
            assert_eq!(serde_json::from_str::<CuResult>(&text).unwrap(), code, "{text}");
        }
        assert_eq!(
            CuResult::from_name("CUDA_ERROR_STREAM_CAPTURE_MERGE"),
            Some(CuResult::STREAM_CAPTURE_MERGE)
        );
        assert_eq!(CuResult::from_name("LAUNCH_FAILED").unwrap().to_string(), "LAUNCH_FAILED");
        assert!(serde_json::from_str::<CuResult>("\"NO_SUCH_CODE\"").is_err());
    }
}

/*
 * The names of Mofka's C++ API up to 0.6, on Thalweg.
 */
#ifndef MOFKA_FORWARD_DECL_HPP
#define MOFKA_FORWARD_DECL_HPP

/* Programs give this namespace, which came with Mofka's headers, a name of their own. */
namespace thallium {
}

namespace mofka {

struct BatchSize;
struct MaxBatch;
struct NumEvents;
struct ThreadCount;
struct StopEventProcessor;
class Client;
class Consumer;
class Data;
class DataDescriptor;
class Event;
class Exception;
class InvalidMetadata;
class Metadata;
class MofkaDriver;
class PartitionInfo;
class PartitionSelector;
class Producer;
class Serializer;
class ThreadPool;
class TopicHandle;
class Validator;
template <typename ResultType, typename WaitFn, typename TestFn> class Future;

} // namespace mofka

#endif

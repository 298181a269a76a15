module thalweg/compat/amqp

go 1.20

require (
	github.com/rabbitmq/amqp091-go v1.10.0
	go.uber.org/goleak v1.3.0
)

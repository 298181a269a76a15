module thalweg/compat/amqp

go 1.20

require (
	github.com/rabbitmq/amqp091-go v1.10.0
	go.uber.org/goleak v1.3.0
)

// 1.3.0 needs Go 1.20, and Debian 12 has 1.19.
replace go.uber.org/goleak => go.uber.org/goleak v1.2.1

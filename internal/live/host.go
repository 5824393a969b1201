// Package live tests the whole product as its users run it: the built binary
// in a network namespace, real packets from another, real sockets. It holds
// nothing but tests and what they share.
package live

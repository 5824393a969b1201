// Package http measures one decision of the HTTP gate beside other limiters in
// Go; load, below it, drives a proxy. It is a module of its own, so that what they
// need does not enter the product's.
package http

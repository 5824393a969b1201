// Package http measures one decision of the HTTP gate beside other limiters in
// Go. It is a module of its own, so that they do not enter the product's.
package http

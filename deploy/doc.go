// Package deploy has no code: it tests what lies beside it, with the tools of
// those who will read it.
package deploy

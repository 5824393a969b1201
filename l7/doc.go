// Package l7 is the HTTP gate: who is asking, which rules match, may it pass,
// what to answer. A request flows through
//
//	identify → match → take → answer
//
// and, when it passes, on through a front door to the upstream. The gate holds
// no file and opens no listener: listeners and policies are handed in, by
// another process as a rule, and what is handed over is plain JSON.
package l7

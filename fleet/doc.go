// Package fleet keeps hosts in step through Redis: what they admit counts
// together, by credit line (package credit) or with a call a decision, and it
// says what happens while Redis is slow, wrong or gone.
//
// Time in Redis is Redis' own. Every key gets its end in the command that
// writes it; names hold a keyed hash, no address, token or user.
package fleet

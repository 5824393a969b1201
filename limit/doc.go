// Package limit holds the counting algorithms of Headgate and the bounded
// store that keeps their state. It is pure: time is an argument or a field,
// nothing is read or written outside memory.
//
// Four kinds of state count. Bucket is a token bucket kept as GCRA (ITU-T I.371,
// one number a key): it admits at most burst + rate·T in any time T. Log keeps
// every admission of the last window, Counter in at most 16 groups: both admit at
// most N in any window, and err to the strict side only, a log by at most 1/32000
// of the window. Tally counts in windows of the clock or periods of the calendar, and
// so up to 2·N around a boundary. None charges what it refuses, unless its Limit
// says so.
package limit

// Package limit holds the counting algorithms of Headgate and the bounded
// store that keeps their state. It is pure: time is an argument or a field,
// nothing is read or written outside memory.
//
// Four kinds of state count. Bucket is a token bucket kept as GCRA (ITU-T I.371,
// one number a key): it admits at most burst + rate·T in any time T. Log keeps
// every admission of the last window and is exact. Counter keeps them in at most
// 16 groups and errs to the strict side only: both admit at most N in any
// window. Tally counts in windows of the clock or periods of the calendar, and
// so up to 2·N around a boundary. None charges what it refuses, unless its Limit
// says so.
package limit

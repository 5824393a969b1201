package limit

import (
	"errors"
	"fmt"
	"math/big"
	"time"
)

const (
	// MaxUnits is the largest number of bytes that one packet costs.
	MaxUnits = 1 << 17

	// maxPerSecond and maxBytesPerSecond bound what a tick still resolves to
	// 0.1 %: 100 million a second, and 400 Gbit/s.
	maxPerSecond      = 100_000_000
	maxBytesPerSecond = 50_000_000_000

	// maxShift keeps Mult well inside 64 bits for the fastest rates; more
	// would add no precision to a result rounded to whole ticks.
	maxShift = 31

	year = 365 * 24 * time.Hour
)

// Figures are a rate and a burst in the unit of the bucket. What n units cost
// is (n·Mult + half) >> Shift ticks, rounded to nearest; the C bucket in
// bpf/bucket.h computes the same. Nothing overflows for n up to 1 when counting,
// up to MaxUnits when counting bytes.
type Figures struct {
	Mult  uint64 // ticks a unit, times 1<<Shift
	Shift uint8  // 0 to 31
	Burst uint64 // the tolerance in ticks: how much debt a bucket may carry
}

// NewFigures converts amount units per interval with the given burst in units.
// With bytes, the unit is a byte and one packet costs up to MaxUnits of it;
// else one packet or request costs one.
//
// The rate is kept to 0.1 % (bytes: to 0.1 % or half a tick a packet, whichever
// is more) from 1 an hour to 100 million a second and from 8 kbit/s to
// 400 Gbit/s. Amounts, intervals and bursts below 1, faster rates, rates so slow that
// one unit (bytes: MaxUnits) takes more than a year, and bursts of more than a
// year's worth are errors.
func NewFigures(amount int64, interval time.Duration, burst int64, bytes bool) (Figures, error) {
	if err := checkFigures(amount, interval, burst, bytes); err != nil {
		return Figures{}, err
	}
	units, noun := int64(1), "request or packet"
	if bytes {
		units, noun = MaxUnits, "packet"
	}
	unit := big.NewRat(int64(interval), amount)
	unit.Mul(unit, big.NewRat(ticksPerNano, 1))
	limit := new(big.Rat).SetInt64(int64(year))
	limit.Mul(limit, big.NewRat(ticksPerNano, 1))

	if new(big.Rat).Mul(unit, big.NewRat(units, 1)).Cmp(limit) > 0 {
		return Figures{}, fmt.Errorf("rate %d per %v: one %s would take more than a year: raise the rate", amount, interval, noun)
	}
	f := scale(unit, units)
	tolerance := new(big.Rat).SetInt(new(big.Int).Mul(big.NewInt(burst), new(big.Int).SetUint64(f.Cost(1))))
	if bytes {
		tolerance.Mul(unit, big.NewRat(burst, 1))
	}
	if tolerance.Cmp(limit) > 0 {
		return Figures{}, fmt.Errorf("burst %d at %d per %v takes more than a year to refill: lower the burst or raise the rate", burst, amount, interval)
	}
	f.Burst = round(tolerance)
	return f, nil
}

func checkFigures(amount int64, interval time.Duration, burst int64, bytes bool) error {
	switch {
	case amount < 1:
		return fmt.Errorf("rate %d: the smallest is 1 per interval", amount)
	case interval < 1:
		return errors.New("rate without an interval: give one, such as 1/s")
	case burst < 1:
		return fmt.Errorf("burst %d: the smallest is 1", burst)
	}
	fastest := int64(maxPerSecond)
	if bytes {
		fastest = maxBytesPerSecond
	}
	rate := big.NewRat(amount, int64(interval))
	if rate.Cmp(big.NewRat(fastest, int64(time.Second))) > 0 {
		return fmt.Errorf("rate %d per %v is too large to count exactly: the largest is %d a second", amount, interval, fastest)
	}
	return nil
}

// scale finds the largest shift at which units·Mult still fits, rounding
// included.
func scale(unit *big.Rat, units int64) Figures {
	for shift := maxShift; ; shift-- {
		mult := new(big.Rat).Mul(unit, new(big.Rat).SetInt(new(big.Int).Lsh(big.NewInt(1), uint(shift))))
		most := new(big.Rat).Mul(mult, big.NewRat(units, 1))
		if most.Num().BitLen()-most.Denom().BitLen() < 62 || shift == 0 {
			return Figures{Mult: round(mult), Shift: uint8(shift)}
		}
	}
}

// round returns r rounded to nearest; r fits in 63 bits.
func round(r *big.Rat) uint64 {
	twice := new(big.Int).Mul(r.Num(), big.NewInt(2))
	twice.Add(twice, r.Denom())
	return twice.Div(twice, new(big.Int).Mul(r.Denom(), big.NewInt(2))).Uint64()
}

// Cost returns what n units cost in ticks.
func (f Figures) Cost(n uint64) uint64 {
	half := uint64(1) << f.Shift >> 1
	return (n*f.Mult + half) >> f.Shift
}

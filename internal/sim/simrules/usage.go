package simrules

import (
	"math"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Usage is how much of a resource a container uses over time: cores, or bytes. The time counts from the start of the container.
//
//	usage(t) = (value + perSecond*t, or the ramp, or the series) + wave + noise
type Usage struct {
	Value resource.Quantity `json:"value"`
	// Annotation is the name of an annotation of the pod whose value replaces the usage when the container is created, if it is an amount.
	Annotation string `json:"annotation"`
	// To and Over make a ramp: from Value to To in the time Over. After that the usage stays.
	To   *resource.Quantity `json:"to"`
	Over metav1.Duration    `json:"over"`
	// PerSecond is by how much the usage grows in each second.
	PerSecond resource.Quantity `json:"perSecond"`
	// Series are points, between which the usage changes evenly. After the last point it stays or, with Repeat, the series starts again.
	Series []Point `json:"series"`
	Repeat bool    `json:"repeat"`
	Wave   *Wave   `json:"wave"`
	// Noise is the largest amount that is added to or subtracted from the usage, at random for each second.
	Noise *resource.Quantity `json:"noise"`
}

// Point is a usage at a time.
type Point struct {
	At    metav1.Duration   `json:"at"`
	Value resource.Quantity `json:"value"`
}

// Wave is a sine.
type Wave struct {
	Amplitude resource.Quantity `json:"amplitude"`
	Period    metav1.Duration   `json:"period"`
}

// Constant returns a usage that does not change, except for its growth in each second.
func Constant(value, perSecond uint64) *Usage {
	return &Usage{
		Value: *resource.NewQuantity(int64(min(value, maxAmount)), resource.BinarySI), PerSecond: *resource.NewQuantity(int64(min(perSecond, maxAmount)), resource.BinarySI), //nolint:gosec // bounded
	}
}

const (
	maxPoints = 10_000
	// maxAmount bounds cores and bytes, so that sums over many containers do not overflow.
	maxAmount = 1 << 50
	// maxTime bounds the times of a usage.
	maxTime = 10 * 365 * 24 * time.Hour
)

// check calls bad for each wrong field.
func (u *Usage) check(bad func(field, text string)) {
	amounts := map[string]*resource.Quantity{"value": &u.Value, "perSecond": &u.PerSecond, "noise": u.Noise, "to": u.To}
	if u.Wave != nil {
		amounts["wave.amplitude"] = &u.Wave.Amplitude
		if u.Wave.Period.Duration < time.Second {
			bad("wave.period", "use a period of at least 1s")
		}
	}
	for field, q := range amounts {
		if q != nil && (q.Sign() < 0 || q.AsApproximateFloat64() > maxAmount) {
			bad(field, "use an amount from 0 to 1Pi")
		}
	}
	switch {
	case u.To != nil && (u.Over.Duration <= 0 || u.Over.Duration > maxTime):
		bad("over", "a ramp needs the time over which the usage changes, such as 10m")
	case u.To == nil && u.Over.Duration != 0:
		bad("over", "only a ramp has this field: set to")
	case len(u.Series) > maxPoints:
		bad("series", "use at most 10000 points")
	}
	shapes := 0
	for _, is := range []bool{u.To != nil, !u.PerSecond.IsZero(), len(u.Series) > 0} {
		if is {
			shapes++
		}
	}
	if shapes > 1 || len(u.Series) > 0 && !u.Value.IsZero() {
		bad("", "choose one of value, to with over, perSecond, and series (only perSecond and to go with value)")
	}
	for i := range u.Series {
		p := &u.Series[i]
		if p.At.Duration < 0 || i > 0 && p.At.Duration <= u.Series[i-1].At.Duration || p.At.Duration > maxTime {
			bad("series["+strconv.Itoa(i)+"].at", "the times must grow from point to point")
		}
		if p.Value.Sign() < 0 || p.Value.AsApproximateFloat64() > maxAmount {
			bad("series["+strconv.Itoa(i)+"].value", "use an amount from 0 to 1Pi")
		}
	}
	if u.Repeat && (len(u.Series) < 2 || u.Series[0].At.Duration != 0) {
		bad("repeat", "a series that repeats needs two points, the first of them at 0s")
	}
	// So the usage is never negative, and its sum over time never falls.
	if swing := u.swing(); swing > u.least()+1e-9 {
		bad("", "wave and noise together are larger than the least usage, so that it would be negative: raise value, or lower them")
	}
}

func amount(q *resource.Quantity) float64 {
	if q == nil {
		return 0
	}
	return q.AsApproximateFloat64()
}

// swing returns the largest amount by which wave and noise together change the usage.
func (u *Usage) swing() float64 {
	s := amount(u.Noise)
	if u.Wave != nil {
		s += amount(&u.Wave.Amplitude)
	}
	return s
}

// least and most are the bounds of the usage without wave and noise.
func (u *Usage) least() float64 {
	least := amount(&u.Value)
	if u.To != nil {
		least = min(least, amount(u.To))
	}
	for i := range u.Series {
		if v := amount(&u.Series[i].Value); i == 0 || v < least {
			least = v
		}
	}
	return least
}

func (u *Usage) most() float64 {
	if !u.PerSecond.IsZero() {
		return maxAmount
	}
	most := amount(&u.Value)
	if u.To != nil {
		most = max(most, amount(u.To))
	}
	for i := range u.Series {
		most = max(most, amount(&u.Series[i].Value))
	}
	return most
}

// At returns the usage after the time t. seed is that of the container.
func (u *Usage) At(t time.Duration, seed uint64) float64 {
	x := max(0, t.Seconds())
	v := u.base(x)
	if u.Wave != nil {
		v += amount(&u.Wave.Amplitude) * math.Sin(2*math.Pi*x/u.Wave.Period.Seconds())
	}
	if n := amount(u.Noise); n > 0 {
		second := uint64(x)
		v += n * (unit(seed, second+1) - unit(seed, second))
	}
	return min(max(v, 0), maxAmount)
}

// base returns the usage without wave and noise.
func (u *Usage) base(x float64) float64 {
	switch {
	case u.To != nil:
		from, to := amount(&u.Value), amount(u.To)
		return from + (to-from)*min(1, x/u.Over.Seconds())
	case len(u.Series) > 0:
		if u.Repeat {
			x = math.Mod(x, u.Series[len(u.Series)-1].At.Seconds())
		}
		return u.between(x)
	}
	return min(amount(&u.Value)+amount(&u.PerSecond)*x, maxAmount)
}

// between returns the value of the series.
func (u *Usage) between(x float64) float64 {
	s := u.Series
	if x <= s[0].At.Seconds() {
		return amount(&s[0].Value)
	}
	low, high := 0, len(s) // the point low is not after x, the point high is
	for high-low > 1 {
		if mid := (low + high) / 2; s[mid].At.Seconds() <= x {
			low = mid
		} else {
			high = mid
		}
	}
	if high == len(s) {
		return amount(&s[low].Value)
	}
	from, to := s[low].At.Seconds(), s[high].At.Seconds()
	a, b := amount(&s[low].Value), amount(&s[high].Value)
	return a + (b-a)*(x-from)/(to-from)
}

// Sum returns the usage that has been added up until the time t, for example core-seconds. It never falls.
func (u *Usage) Sum(t time.Duration, seed uint64) float64 {
	x := max(0, t.Seconds())
	sum := u.sumBase(x)
	if u.Wave != nil {
		w := 2 * math.Pi / u.Wave.Period.Seconds()
		sum += amount(&u.Wave.Amplitude) * (1 - math.Cos(w*x)) / w
	}
	if n := amount(u.Noise); n > 0 {
		second := uint64(x)
		here := unit(seed, second)
		sum += n * (here + (unit(seed, second+1)-here)*(x-float64(second)) - unit(seed, 0))
	}
	return max(0, sum)
}

func (u *Usage) sumBase(x float64) float64 {
	switch {
	case u.To != nil:
		from, to, over := amount(&u.Value), amount(u.To), u.Over.Seconds()
		in := min(x, over)
		return from*in + (to-from)*in*in/(2*over) + to*(x-in)
	case len(u.Series) > 0:
		if !u.Repeat {
			return u.sumSeries(x)
		}
		lap := u.Series[len(u.Series)-1].At.Seconds()
		laps := math.Floor(x / lap)
		return laps*u.sumSeries(lap) + u.sumSeries(x-laps*lap)
	}
	return amount(&u.Value)*x + amount(&u.PerSecond)*x*x/2
}

// sumSeries adds up one run of the series until x.
func (u *Usage) sumSeries(x float64) (sum float64) {
	s := u.Series
	sum = amount(&s[0].Value) * min(x, s[0].At.Seconds())
	for i := range s {
		from := s[i].At.Seconds()
		if from >= x {
			break
		}
		end := x
		if i+1 < len(s) {
			end = min(x, s[i+1].At.Seconds())
		}
		sum += (u.between(from) + u.between(end)) / 2 * (end - from)
	}
	return sum
}

// throttledSteps is the largest number of steps in which Throttled adds up a usage that is sometimes above its limit.
const throttledSteps = 1000

// Throttled returns the usage that is added up between two times if it is at no moment larger than a limit, for example the core-seconds of a
// container with a CPU limit. It is never negative.
func (u *Usage) Throttled(from, to time.Duration, limit float64, seed uint64) float64 {
	span := (to - from).Seconds()
	switch {
	case span <= 0:
		return 0
	case u.most()+u.swing() <= limit:
		return max(0, u.Sum(to, seed)-u.Sum(from, seed))
	case u.least()-u.swing() >= limit:
		return limit * span
	}
	steps := int(min(max(1, math.Ceil(10*span)), throttledSteps)) // the usage of its middle stands for a step of a tenth of a second
	step := (to - from) / time.Duration(steps)
	sum := 0.0
	for i := range steps {
		sum += min(u.At(from+step*time.Duration(i)+step/2, seed), limit)
	}
	return sum * span / float64(steps)
}

// searchFor is how far Exceeds looks ahead in a usage with waves or noise, and searchStep in which steps.
const (
	searchFor  = 6 * time.Hour
	searchStep = time.Second
)

// Exceeds returns when the usage is first larger than a limit; false: never, or for a usage with waves or noise not in the first six hours.
func (u *Usage) Exceeds(limit float64, seed uint64) (at time.Duration, ok bool) {
	start := u.base(0)
	switch {
	case u.most()+u.swing() <= limit:
		return 0, false
	case u.swing() == 0 && start > limit:
		return 0, true
	case u.swing() == 0 && u.To != nil:
		return seconds((limit - start) / (amount(u.To) - start) * u.Over.Seconds())
	case u.swing() == 0 && len(u.Series) == 0:
		return seconds((limit - start) / amount(&u.PerSecond))
	case u.swing() == 0:
		return u.seriesExceeds(limit)
	}
	for t := time.Duration(0); t < searchFor; t += searchStep {
		if u.At(t, seed) > limit {
			return t, true
		}
	}
	return 0, false
}

func (u *Usage) seriesExceeds(limit float64) (time.Duration, bool) {
	for i := 1; i < len(u.Series); i++ {
		a, b := amount(&u.Series[i-1].Value), amount(&u.Series[i].Value)
		if b > limit {
			from, to := u.Series[i-1].At.Seconds(), u.Series[i].At.Seconds()
			return seconds(from + (limit-a)/(b-a)*(to-from))
		}
	}
	return 0, false
}

// seconds converts x, a number of seconds, to a duration. At the time x a usage is equal to a limit, and Exceeds returns when it is larger, so
// seconds adds a millisecond. The result is false if x is larger than maxTime.
func seconds(x float64) (time.Duration, bool) {
	if x > maxTime.Seconds() {
		return 0, false
	}
	return time.Duration(x*float64(time.Second)) + time.Millisecond, true
}

// unit returns a pseudo-random number in [0,1), the same for the same arguments.
func unit(seed, n uint64) float64 {
	x := seed ^ n*0x9e3779b97f4a7c15
	x ^= x >> 30
	x *= 0xbf58476d1ce4e5b9
	x ^= x >> 27
	x *= 0x94d049bb133111eb
	x ^= x >> 31
	return float64(x>>11) / (1 << 53)
}

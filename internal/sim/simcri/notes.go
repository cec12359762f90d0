package simcri

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/wherry-node/wherry/internal/core/strict"
)

// noteForms has the annotations whose values have a form, each with a check of a value. The other annotations are texts.
var noteForms = []struct {
	name  string
	check func(value string) error
}{
	{AnnotationRunFor, checkDuration},
	{AnnotationExitCode, checkExitCode},
	{AnnotationFailAttempts, checkAttempts},
	{AnnotationStopAfter, checkStopAfter},
	{AnnotationReadyAfter, checkDuration},
	{AnnotationFailAfter, checkDuration},
	{AnnotationCPU, checkCores},
	{AnnotationMemory, checkAmount},
	{AnnotationMemoryGrows, checkAmount},
	{AnnotationDisk, checkAmount},
	{AnnotationDiskGrows, checkAmount},
}

// checkNotes returns an error for each annotation of a container's pod that applies to the container and has a value without meaning.
func (c *container) checkNotes() error {
	var errs []error
	for _, form := range noteForms {
		if v, ok := c.note(form.name); ok {
			if err := form.check(v); err != nil {
				errs = append(errs, fmt.Errorf("annotation %s: %.100q: %w", form.name, v, err))
			}
		}
	}
	return errors.Join(errs...)
}

func checkDuration(v string) error {
	if d, err := time.ParseDuration(v); err != nil || d < 0 {
		return errors.New("use a duration, such as 10s")
	}
	return nil
}

func checkStopAfter(v string) error {
	if v != "never" && checkDuration(v) != nil {
		return errors.New(`use a duration, such as 10s, or "never"`)
	}
	return nil
}

func checkExitCode(v string) error {
	if _, err := strconv.ParseInt(v, 10, 32); err != nil {
		return errors.New("use an exit code, such as 1")
	}
	return nil
}

func checkAttempts(v string) error {
	if _, err := strconv.ParseUint(v, 10, 32); err != nil {
		return errors.New("use a number of attempts, such as 3")
	}
	return nil
}

func checkCores(v string) error {
	_, err := parseCores(v)
	return err
}

func checkAmount(v string) error {
	_, err := parseAmount(v)
	return err
}

// parseAmount reads a number of bytes: 1048576, or a quantity of Kubernetes such as 1Mi. The largest amount is maxAmount.
func parseAmount(v string) (uint64, error) {
	n, err := strconv.ParseUint(v, 10, 64)
	if err == nil || errors.Is(err, strconv.ErrRange) {
		return min(n, maxAmount), nil
	}
	q, err := strict.ParseQuantity(v)
	if err != nil || q.Sign() < 0 {
		return 0, errors.New("use a number of bytes, such as 1048576 or 1Mi")
	}
	return uint64(min(q.AsApproximateFloat64(), maxAmount)), nil
}

// parseCores reads a number of cores: 0.25, or a quantity of Kubernetes such as 250m. The largest number is maxCores.
func parseCores(v string) (float64, error) {
	f, err := strconv.ParseFloat(v, 64)
	if err != nil && !errors.Is(err, strconv.ErrRange) {
		q, err := strict.ParseQuantity(v)
		if err != nil {
			return 0, errNoCores
		}
		f = q.AsApproximateFloat64()
	}
	if f < 0 || math.IsNaN(f) {
		return 0, errNoCores
	}
	return min(f, maxCores), nil
}

var errNoCores = errors.New("use a number of cores, such as 0.25 or 250m")

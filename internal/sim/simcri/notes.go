package simcri

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
)

// noteForms are the annotations whose values have a form. The others are texts.
var noteForms = map[string]func(string) error{
	AnnotationRunFor: durationForm, AnnotationReadyAfter: durationForm, AnnotationFailAfter: durationForm,
	AnnotationStopAfter: func(v string) error {
		if v == "never" {
			return nil
		}
		if durationForm(v) != nil {
			return errors.New(`use a duration, such as 10s, or "never"`)
		}
		return nil
	},
	AnnotationExitCode: func(v string) error {
		if _, err := strconv.ParseInt(v, 10, 32); err != nil {
			return errors.New("use an exit code, such as 1")
		}
		return nil
	},
	AnnotationFailAttempts: func(v string) error {
		if _, err := strconv.ParseUint(v, 10, 32); err != nil {
			return errors.New("use a number of attempts, such as 3")
		}
		return nil
	},
	AnnotationCPU: func(v string) error {
		_, err := parseCores(v)
		return err
	},
	AnnotationMemory: amountForm, AnnotationMemoryGrows: amountForm, AnnotationDisk: amountForm, AnnotationDiskGrows: amountForm,
}

func durationForm(v string) error {
	if d, err := time.ParseDuration(v); err != nil || d < 0 {
		return errors.New("use a duration, such as 10s")
	}
	return nil
}

func amountForm(v string) error {
	_, err := parseAmount(v)
	return err
}

// checkNotes returns an error for each annotation of a container's pod that applies to the container and has a value without meaning.
func (c *container) checkNotes() error {
	var errs []error
	for _, name := range []string{
		AnnotationRunFor, AnnotationExitCode, AnnotationFailAttempts, AnnotationStopAfter, AnnotationReadyAfter, AnnotationFailAfter,
		AnnotationCPU, AnnotationMemory, AnnotationMemoryGrows, AnnotationDisk, AnnotationDiskGrows,
	} {
		if v, ok := c.note(name); ok {
			if err := noteForms[name](v); err != nil {
				errs = append(errs, fmt.Errorf("annotation %s: %.100q: %w", name, v, err))
			}
		}
	}
	return errors.Join(errs...)
}

// parseAmount reads a number of bytes: 1048576, or a quantity of Kubernetes such as 1Mi. The largest amount is maxAmount.
func parseAmount(v string) (uint64, error) {
	n, err := strconv.ParseUint(v, 10, 64)
	if err == nil || errors.Is(err, strconv.ErrRange) {
		return min(n, maxAmount), nil
	}
	q, err := resource.ParseQuantity(v)
	if err != nil || q.Sign() < 0 {
		return 0, errors.New("use a number of bytes, such as 1048576 or 1Mi")
	}
	return min(uint64(q.Value()), maxAmount), nil
}

// parseCores reads a number of cores: 0.25, or a quantity of Kubernetes such as 250m. The largest number is maxCores.
func parseCores(v string) (float64, error) {
	f, err := strconv.ParseFloat(v, 64)
	if err != nil {
		var q resource.Quantity
		if q, err = resource.ParseQuantity(v); err == nil {
			f = q.AsApproximateFloat64()
		}
	}
	if err != nil || f < 0 || math.IsNaN(f) {
		return 0, errors.New("use a number of cores, such as 0.25 or 250m")
	}
	return min(f, maxCores), nil
}

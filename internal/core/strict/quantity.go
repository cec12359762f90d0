package strict

import (
	"errors"
	"fmt"
	"regexp"

	"k8s.io/apimachinery/pkg/api/resource"
)

// maxQuantity bounds the text of a quantity, in bytes.
const maxQuantity = 64

// hugeExponent matches an exponent with more than three digits.
var hugeExponent = regexp.MustCompile(`[eE][+-]?[0-9]{4,}`)

// ParseQuantity does what resource.ParseQuantity does, for a text that anybody may have written. It refuses what no quantity needs: more than 64
// bytes, and an exponent of more than three digits, because resource.ParseQuantity computes the number, which can take hours.
func ParseQuantity(text string) (resource.Quantity, error) {
	if err := checkQuantity([]byte(text)); err != nil {
		return resource.Quantity{}, err
	}
	return resource.ParseQuantity(text)
}

// checkQuantity returns an error for a quantity, as plain text or as JSON, that must not be parsed.
func checkQuantity(text []byte) error {
	switch {
	case len(text) > maxQuantity:
		return fmt.Errorf("a quantity has at most %d characters", maxQuantity)
	case hugeExponent.Match(text):
		return errors.New("the exponent of a quantity has at most three digits")
	}
	return nil
}

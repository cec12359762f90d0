package simulated

import "errors"

// FieldError says that one field of a value is wrong. Field and text are separate, so that a caller can name the field as its user knows it, for
// example as a flag. Packages simulated and fleet return it.
type FieldError struct {
	// Field is the path of the field, such as "exit.pod": with the names of JSON, but of fleet.Config with those of Go ("Shard.Name").
	Field string
	// Err says what is wrong, without the field's name.
	Err error
}

// Error returns the path and what is wrong.
func (e *FieldError) Error() string { return e.Field + ": " + e.Err.Error() }

// Unwrap returns what is wrong.
func (e *FieldError) Unwrap() error { return e.Err }

// Within returns an error about a part of a value as one about the value that has the part as its field parent. An error that names no field is
// then about the whole part. nil stays nil.
func Within(parent string, err error) error {
	if err == nil {
		return nil
	}
	if f, ok := errors.AsType[*FieldError](err); ok {
		return &FieldError{parent + "." + f.Field, f.Err}
	}
	return &FieldError{parent, err}
}

// wrong returns a FieldError with a constant text.
func wrong(field, text string) error { return &FieldError{field, errors.New(text)} }

package convert

import "fmt"

// Problem is a part of an object that could not be taken as it is written.
type Problem struct {
	Field   string // a JSON path such as spec.ingress[0].from[1].ipBlock.cidr
	Message string
	// Warning: the object is right, but the part does not do here what its
	// author may expect.
	Warning bool
}

func (p Problem) String() string { return fmt.Sprintf("%s: %s", p.Field, p.Message) }

// problems collects Problems while an object is converted.
type problems []Problem

func (ps *problems) add(path, format string, args ...any) {
	*ps = append(*ps, Problem{Field: path, Message: fmt.Sprintf(format, args...)})
}

func (ps *problems) warn(path, format string, args ...any) {
	*ps = append(*ps, Problem{Field: path, Message: fmt.Sprintf(format, args...), Warning: true})
}

package manifest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"iter"

	yamlv3 "go.yaml.in/yaml/v3"
	"sigs.k8s.io/yaml"
)

// split yields the parts of a stream between the lines that separate YAML
// documents, with the number of the line that each begins on: "---" and what follows it
// on its line belongs to the next, "..." ends one. A line of either is never content,
// wherever it stands.
func split(text []byte) iter.Seq2[int, []byte] {
	return func(yield func(int, []byte) bool) {
		text = bytes.TrimPrefix(text, []byte("\xef\xbb\xbf")) // the byte order mark that Windows writes
		begin, begun := 0, false
		first := 1 // line of begin
		for at, n := 0, 1; at < len(text); n++ {
			end := len(text)
			if i := bytes.IndexByte(text[at:], '\n'); i >= 0 {
				end = at + i + 1
			}
			line := text[at:end]
			if isMarker(line, "---") || isMarker(line, "...") {
				if part := text[begin:at]; begun || len(bytes.TrimSpace(part)) > 0 {
					if !yield(first, part) {
						return
					}
				}
				first = n
				begin, begun = at+3, line[0] == '-'
			}
			at = end
		}
		if part := text[begin:]; len(bytes.TrimSpace(part)) > 0 {
			yield(first, part)
		}
	}
}

// isMarker says whether a line is a marker, alone or with something after a space.
func isMarker(line []byte, marker string) bool {
	rest, ok := bytes.CutPrefix(line, []byte(marker))
	return ok && (len(rest) == 0 || bytes.ContainsAny(rest[:1], " \t\r\n"))
}

// value is one of a stream.
type value struct {
	json []byte // nil of an empty one
	text []byte // as it is written
	line int    // that the text begins on, after that of the part
}

// values returns the values of a part of a stream: one of YAML, or any number of JSON, as
// jq writes them.
func values(part []byte) ([]value, error) {
	first := bytes.TrimSpace(part)
	if len(first) == 0 {
		return []value{{}}, nil
	}
	if first[0] == '{' {
		out, err := jsonValues(part)
		if err == nil {
			return out, nil
		}
		// YAML has braces too, but would take a key in quotes only as JSON does.
		if rest := bytes.TrimSpace(first[1:]); len(rest) > 0 && rest[0] == '"' {
			if v, yamlErr := yamlValue(part); yamlErr == nil {
				return []value{{json: v, text: part}}, nil
			}
			return out, err
		}
	}
	v, err := yamlValue(part)
	if err != nil {
		return nil, err
	}
	return []value{{json: v, text: part}}, nil
}

// jsonValues returns the values before the error too.
func jsonValues(text []byte) ([]value, error) {
	var out []value
	line, counted := 0, 0
	for d := json.NewDecoder(bytes.NewReader(text)); ; {
		var v json.RawMessage
		if err := d.Decode(&v); err == io.EOF {
			return out, nil
		} else if err != nil {
			return out, fmt.Errorf("%w, after %d bytes", err, d.InputOffset())
		}
		begin := int(d.InputOffset()) - len(v)
		line += bytes.Count(text[counted:begin], []byte("\n"))
		counted = begin
		out = append(out, value{v, v, line})
	}
}

// yamlValue converts one YAML document, and refuses one that is too much: that
// is large, or that aliases blow up.
func yamlValue(text []byte) ([]byte, error) {
	if len(text) > MaxYAMLBytes {
		return nil, fmt.Errorf("a YAML document of more than %d MiB: write it as JSON, or in parts", MaxYAMLBytes>>20)
	}
	if bytes.IndexByte(text, '&') >= 0 && bytes.IndexByte(text, '*') >= 0 {
		if err := checkAliases(text); err != nil {
			return nil, err
		}
	}
	v, err := yaml.YAMLToJSONStrict(text)
	if err != nil || bytes.Equal(bytes.TrimSpace(v), []byte("null")) {
		return nil, err // empty, or comments only
	}
	return v, nil
}

// checkAliases refuses a document that is too large with its aliases written
// out: the parser bounds how many there are, but not what they stand for.
func checkAliases(text []byte) error {
	var doc yamlv3.Node
	if err := yamlv3.Unmarshal(text, &doc); err != nil {
		return err
	}
	sizes := map[*yamlv3.Node]int{}
	var size func(*yamlv3.Node) int
	size = func(n *yamlv3.Node) int {
		if s, known := sizes[n]; known {
			return s
		}
		sizes[n] = MaxYAMLBytes + 1 // until it is known: one that contains itself has no end
		s := len(n.Value) + 4
		if n.Alias != nil {
			s = size(n.Alias)
		}
		for _, c := range n.Content {
			s = min(s+size(c), MaxYAMLBytes+1)
		}
		sizes[n] = s
		return s
	}
	if size(&doc) > MaxYAMLBytes {
		return fmt.Errorf("aliases make more than %d MiB of it", MaxYAMLBytes>>20)
	}
	return nil
}

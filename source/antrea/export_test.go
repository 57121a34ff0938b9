package antrea

import "isobar.dev/api/convert"

// What the tests reach of the state file, whose disk they cannot fill otherwise.
var (
	WriteState = writeState
	ReadState  = readState
	ParseState = parseState
)

// FileHeader returns what stands before a body.
func FileHeader(body []byte) []byte { return fileHeader(body) }

// Frames reads events until they end, and takes them as a watch of a resource does.
func Frames(contentType string, body reader, resource int) (convert.ControlPlane, error) {
	in := newIntake("node/n")
	in.parts[resource].begin()
	frames, err := newFrames(contentType, body)
	for err == nil {
		var f frame
		if f, err = frames.next(); err != nil {
			break
		}
		var object any
		if object, err = f.object(); err != nil {
			break
		}
		err = in.parts[resource].take(f.event, object)
	}
	in.reader.Reading()
	return in.reader.Held(), err
}

type reader interface{ Read([]byte) (int, error) }

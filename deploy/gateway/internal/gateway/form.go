package gateway

import (
	"errors"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"os"
	"strings"
	"unicode/utf8"

	"headrace/gateway/internal/jsonform"
)

// fieldBytesMax limits a part that is not a file, such as an id.
const fieldBytesMax = 4096

var errInvalidForm = &jsonform.Invalid{Field: jsonform.Body, Rule: "must be a whole multipart/form-data form"}

// form reads the parts of a form; each must be read before the next.
type form struct{ reader *multipart.Reader }

type part struct {
	name, fileName string
	body           io.Reader
}

// nextPart returns the next part, or nil at the end.
func (f *form) nextPart() (*part, error) {
	raw, err := f.reader.NextRawPart()
	if err == io.EOF { // not errors.Is, because a truncated form wraps it
		return nil, nil
	}
	if err != nil {
		return nil, formError(err)
	}
	if strings.HasPrefix(strings.ToLower(raw.Header.Get("Content-Type")), "multipart/") {
		return nil, &jsonform.Invalid{Field: jsonform.Body, Rule: "must not have parts within parts"}
	}
	// raw.FileName would remove the folders, but a name with folders has to be refused.
	_, parameters, err := mime.ParseMediaType(raw.Header.Get("Content-Disposition"))
	if err != nil || !utf8.ValidString(parameters["name"]) {
		return nil, errInvalidForm
	}
	if !utf8.ValidString(parameters["filename"]) {
		return nil, &jsonform.Invalid{Field: "file", Rule: "must have a name in UTF-8"}
	}
	return &part{parameters["name"], parameters["filename"], raw}, nil
}

// readData fills data as far as the part goes, and reports whether that was its end.
func (p *part) readData(data []byte) (count int, isEnd bool, err error) {
	for count < len(data) {
		read, err := p.body.Read(data[count:])
		count += read
		if err == io.EOF {
			return count, true, nil
		}
		if err != nil {
			return count, false, formError(err)
		}
	}
	return count, false, nil
}

// readText returns a part that is not a file.
func (p *part) readText() (string, error) {
	data := make([]byte, fieldBytesMax+1)
	count, _, err := p.readData(data)
	if err != nil {
		return "", err
	}
	if count > fieldBytesMax {
		name := []rune(p.name)
		return "", &jsonform.Invalid{Field: string(name[:min(len(name), 64)]), Rule: "must not be longer than 4096 bytes"}
	}
	if !utf8.Valid(data[:count]) {
		return "", errInvalidForm
	}
	return string(data[:count]), nil
}

// formError translates an error of reading a form.
func formError(err error) error {
	if _, isTooLarge := errors.AsType[*http.MaxBytesError](err); isTooLarge || errors.Is(err, os.ErrDeadlineExceeded) {
		return bodyError(err)
	}
	return errInvalidForm
}

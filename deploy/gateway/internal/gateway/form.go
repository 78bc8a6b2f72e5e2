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

// fieldBytesMax is of a part that is no file: an id.
const fieldBytesMax = 4096

var errForm = &jsonform.Invalid{Field: jsonform.Body, Rule: "must be a whole multipart/form-data form"}

// form reads the parts of a form, each to be read before the next.
type form struct{ reader *multipart.Reader }

type part struct {
	name, fileName string
	body           io.Reader
}

// next gives the next part; nil at the end.
func (f *form) next() (*part, error) {
	found, err := f.reader.NextRawPart()
	if err == io.EOF { // not errors.Is: a form that breaks off wraps it
		return nil, nil
	}
	if err != nil {
		return nil, broken(err)
	}
	if strings.HasPrefix(strings.ToLower(found.Header.Get("Content-Type")), "multipart/") {
		return nil, &jsonform.Invalid{Field: jsonform.Body, Rule: "must not have parts within parts"}
	}
	// Not found.FileName: it takes the folders off, and a name with folders is to be refused.
	_, parameters, err := mime.ParseMediaType(found.Header.Get("Content-Disposition"))
	if err != nil || !utf8.ValidString(parameters["name"]) {
		return nil, errForm
	}
	if !utf8.ValidString(parameters["filename"]) {
		return nil, &jsonform.Invalid{Field: "file", Rule: "must have a name in UTF-8"}
	}
	return &part{parameters["name"], parameters["filename"], found}, nil
}

// read fills `data` as far as the part goes, and tells whether that was its end.
func (p *part) read(data []byte) (count int, isEnd bool, err error) {
	for count < len(data) {
		more, err := p.body.Read(data[count:])
		count += more
		if err == io.EOF {
			return count, true, nil
		}
		if err != nil {
			return count, false, broken(err)
		}
	}
	return count, false, nil
}

// text gives a part that is no file.
func (p *part) text() (string, error) {
	data := make([]byte, fieldBytesMax+1)
	count, _, err := p.read(data)
	if err != nil {
		return "", err
	}
	if count > fieldBytesMax {
		name := []rune(p.name)
		return "", &jsonform.Invalid{Field: string(name[:min(len(name), 64)]), Rule: "must not be longer than 4096 bytes"}
	}
	if !utf8.Valid(data[:count]) {
		return "", errForm
	}
	return string(data[:count]), nil
}

// broken says why a form could not be read.
func broken(err error) error {
	if _, isTooLarge := errors.AsType[*http.MaxBytesError](err); isTooLarge || errors.Is(err, os.ErrDeadlineExceeded) {
		return unread(err)
	}
	return errForm
}

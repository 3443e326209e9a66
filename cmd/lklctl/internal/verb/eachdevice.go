// SPDX-License-Identifier: Apache-2.0

package verb

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
)

// deviceRow is the output of a verb for one of several devices.
type deviceRow struct {
	Device string          `json:"device"`           // as --device takes it
	Status int             `json:"status"`           // exit status for this device alone
	Result json.RawMessage `json:"result,omitempty"` // output for this device; absent if the verb failed
}

func newDeviceRow(device string, status int, text string) deviceRow {
	r := deviceRow{Device: device, Status: status}
	if json.Valid([]byte(text)) {
		r.Result = json.RawMessage(text)
	}
	return r
}

// saidError ends lklctl with a status and without a message, because everything
// has been printed.
type saidError struct{ status int }

func (e *saidError) Error() string { return fmt.Sprintf("status %d", e.status) }

// prefixed writes a prefix before each line.
type prefixed struct {
	w      io.Writer
	prefix string
	within bool // inside a line
}

func (p *prefixed) Write(text []byte) (int, error) {
	var b strings.Builder
	for line := range strings.Lines(string(text)) {
		if !p.within {
			b.WriteString(p.prefix)
		}
		b.WriteString(line)
		p.within = line[len(line)-1] != '\n'
	}
	_, err := io.WriteString(p.w, b.String())
	return len(text), err
}

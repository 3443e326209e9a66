// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
)

// deviceRow is what a verb printed of one of several devices.
type deviceRow struct {
	Device string          `json:"device"`           // as --device takes it
	Status int             `json:"status"`           // what the exit status would be of this device alone
	Result json.RawMessage `json:"result,omitempty"` // what it prints with one device; absent when it failed
}

func newDeviceRow(device string, status int, text string) deviceRow {
	r := deviceRow{Device: device, Status: status}
	if json.Valid([]byte(text)) {
		r.Result = json.RawMessage(text)
	}
	return r
}

// saidError ends lklctl with a status; what there was to say has been said.
type saidError struct{ status int }

func (e *saidError) Error() string { return fmt.Sprintf("status %d", e.status) }

// prefixed writes each line behind a prefix.
type prefixed struct {
	w      io.Writer
	prefix string
	within bool // a line has begun
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

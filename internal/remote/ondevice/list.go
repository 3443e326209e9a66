// SPDX-License-Identifier: Apache-2.0

package ondevice

import (
	"bytes"
	"encoding/json"
	"io"
	"time"

	"github.com/lklrun/lklrun/internal/instance"
)

// followEvery is how often Follow looks: here that costs next to nothing.
const followEvery = 250 * time.Millisecond

// List writes the instances of this user as one line of JSON.
func List(out io.Writer) error {
	line, err := list()
	if err == nil {
		_, err = out.Write(line)
	}
	return err
}

// Follow is List, and again whenever there is something else to tell, until in ends.
func Follow(in io.Reader, out io.Writer) error {
	ended := make(chan struct{})
	go func() {
		_, _ = io.Copy(io.Discard, in)
		close(ended)
	}()
	tick := time.NewTicker(followEvery)
	defer tick.Stop()
	var told []byte
	for {
		line, err := list()
		if err != nil {
			return err
		}
		if !bytes.Equal(line, told) {
			if _, err := out.Write(line); err != nil {
				return err
			}
			told = line
		}
		select {
		case <-tick.C:
		case <-ended:
			return nil
		}
	}
}

func list() ([]byte, error) {
	all, err := instance.Place{}.List()
	if err != nil {
		return nil, err
	}
	if all == nil {
		all = []instance.Info{}
	}
	line, err := json.Marshal(all)
	return append(line, '\n'), err
}

// SPDX-License-Identifier: Apache-2.0

package ondevice

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"time"

	"github.com/lklrun/lklrun/internal/instance"
)

// followEvery is the interval at which Follow checks the list. A check on the
// device is cheap.
const followEvery = 250 * time.Millisecond

// While Follow runs, the desk and the device each send data every FollowBeat. If
// one side is silent for FollowSilence, the other side assumes that it is gone.
const (
	FollowBeat    = 2 * time.Second
	FollowSilence = 8 * time.Second
)

// List writes the instances of this user as one line of JSON.
func List(out io.Writer) error {
	line, err := list()
	if err == nil {
		_, err = out.Write(line)
	}
	return err
}

// Followed is one line of Follow's output.
type Followed struct {
	PID       int             `json:"pid"`       // process ID of Follow on the device
	Instances []instance.Info `json:"instances"` // the present instances
}

// Follow writes the instances of this user, one Followed per line, at each change
// and at least every FollowBeat. It ends at the end of in. It also ends when in was
// silent for FollowSilence, because the desk is then gone.
func Follow(in io.Reader, out io.Writer) error {
	heard := make(chan error, 1)
	go func() {
		b := make([]byte, 64)
		for {
			_, err := in.Read(b)
			heard <- err
			if err != nil {
				return
			}
		}
	}()
	tick := time.NewTicker(followEvery)
	defer tick.Stop()
	silence := time.NewTimer(FollowSilence)
	defer silence.Stop()
	var told []byte
	var last time.Time
	for {
		all, err := instance.Place{}.List()
		if err != nil {
			return err
		}
		line, err := json.Marshal(Followed{os.Getpid(), all})
		if err != nil {
			return err
		}
		if !bytes.Equal(line, told) || time.Since(last) >= FollowBeat {
			if _, err := out.Write(append(line, '\n')); err != nil {
				return err
			}
			told, last = line, time.Now()
		}
		select {
		case <-tick.C:
		case err := <-heard:
			if err != nil {
				return nil
			}
			silence.Reset(FollowSilence)
		case <-silence.C:
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

package prompt_test

import (
	"fmt"

	"cedrun/runtime/prompt"
)

func Example() {
	conversation, err := prompt.ParseMessages([]byte(`{
		"messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Is <think> a word?"}],
		"thinking": true, "effort": "low"}`))
	if err != nil {
		fmt.Println(err)
		return
	}
	p, err := prompt.Render(conversation.Messages, conversation.Options())
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, s := range p.Segments {
		fmt.Printf("control=%-5v %q\n", s.Control, s.Text)
	}

	parser, err := prompt.NewParser(p.Start(), nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	var answer prompt.Collector
	for _, piece := range []string{"It is a tag", ".\n</th", "ink>", "\n\nNo.", prompt.EOS} {
		answer.Add(parser.Feed(piece)...)
	}
	answer.Add(parser.Close(prompt.ReasonStop)...)
	r := answer.Result()
	fmt.Printf("%q, then %q, %s\n", r.Reasoning, r.Content, r.Finish.Reason)
	// Output:
	// control=true  "<｜begin▁of▁sentence｜>"
	// control=true  "<｜System｜>"
	// control=false "Reasoning Effort: 50 (range 1-100, the higher the value, the more thorough the reasoning)\n\nBe brief."
	// control=true  "<｜User｜>"
	// control=false "Is <think> a word?"
	// control=true  "<｜Assistant｜>"
	// control=true  "<think>"
	// "It is a tag.", then "No.", stop
}

package prompt

// Spellings of the control tokens that the encoding uses (serving.md 5.2).
const (
	BOS            = "<｜begin▁of▁sentence｜>"
	EOS            = "<｜end▁of▁sentence｜>"
	SystemRole     = "<｜System｜>"
	UserRole       = "<｜User｜>"
	AssistantRole  = "<｜Assistant｜>"
	LatestReminder = "<｜latest_reminder｜>"
	ThinkStart     = "<think>"
	ThinkEnd       = "</think>"
	DSML           = "｜DSML｜"
	ImagePad       = "<｜deepseek_image｜>"
	FIMBegin       = "<｜fim▁begin｜>"
	FIMHole        = "<｜fim▁hole｜>"
	FIMEnd         = "<｜fim▁end｜>"
)

// imagePadAlternative is how some tokenizers spell ImagePad; the id is the same (decision S7).
const imagePadAlternative = "<｜image｜>"

// taskTokens maps the value of a message's task to its control token.
var taskTokens = map[string]string{
	"action":    "<｜action｜>",
	"query":     "<｜query｜>",
	"authority": "<｜authority｜>",
	"domain":    "<｜domain｜>",
	"title":     "<｜title｜>",
	"read_url":  "<｜read_url｜>",
}

// Parts of the DSML tool-call markup. V4.1 writes a space after the token; V4 did not.
const (
	dsmlOpen       = "<" + DSML
	dsmlClose      = "</" + DSML
	callsOpen      = dsmlOpen + " calls>"
	callsClose     = dsmlClose + " calls>"
	invokeOpen     = dsmlOpen + ` invoke name="`
	invokeClose    = dsmlClose + " invoke>"
	parameterOpen  = dsmlOpen + ` parameter name="`
	parameterClose = dsmlClose + " parameter>"
	flagTrue       = `" string="true">`
	flagFalse      = `" string="false">`
)

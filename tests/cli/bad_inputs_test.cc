// Inputs of all kinds, mostly bad: what the program says and how it ends. Each row is a shell
// command in which $K is the program, $D a scratch folder, $M the demo model and $A asks it a
// question.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include "cli/program.h"

namespace kakeya::test {
namespace {

struct Row {
  std::string command;
  int exit_code;
  std::string part;  // of what stands on standard error
};

class BadInputs : public Cli {
 protected:
  Outcome shell(const std::string& command) {
    std::ofstream(folder_ + "/script") << command << "\n";
    const std::string model = std::string("'") + KAKEYA_DEMO_MODEL + "'";
    const std::string line = "K=" + std::string(KAKEYA_BINARY) + " D=" + folder_ + " M=" + model +
                             " A='run -m " + KAKEYA_DEMO_MODEL + " -n 2 -p Count'" +
                             " timeout 60 bash " + folder_ + "/script < /dev/null > " + folder_ +
                             "/out 2> " + folder_ + "/err";
    const int status = std::system(line.c_str());
    return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, slurp(folder_ + "/out"),
            slurp(folder_ + "/err")};
  }

  void expect_rows(const std::vector<Row>& rows) {
    for (const Row& row : rows) {
      const Outcome outcome = shell(row.command);
      EXPECT_EQ(outcome.exit_code, row.exit_code) << row.command << "\n" << outcome.err;
      EXPECT_NE(outcome.err.find(row.part), std::string::npos) << row.command << "\n"
                                                               << outcome.err;
      if (row.exit_code != 2) continue;
      EXPECT_EQ(outcome.out, "") << row.command;
      // Plans and progress may stand before it.
      const std::size_t last = outcome.err.find("kakeya: ");
      EXPECT_NE(last, std::string::npos) << row.command << "\n" << outcome.err;
      if (last == std::string::npos) continue;
      EXPECT_EQ(outcome.err.find('\n', last), outcome.err.size() - 1) << row.command << "\n"
                                                                      << outcome.err;
    }
  }
};

// A prompt that cannot fit is refused before it is tokenised, which would take more memory than
// there is here.
TEST_F(BadInputs, OfAPromptThatIsTooLongForTheAddressSpace) {
  expect_rows(
      {{"head -c 4000000 /dev/zero | tr '\\0' a > $D/big; ulimit -v 400000; $K run -m $M -f "
        "$D/big",
        2, "context of 8192 tokens is exceeded: the prompt has 4000000 bytes"}});
}

TEST_F(BadInputs, OfCommandsAndPrompts) {
  expect_rows({
      {"$K", 2, "kakeya: "},
      {"$K fly", 2, "there is no command 'fly' (see kakeya --help)"},
      {"$K inspct $M", 2,
       "there is no command 'inspct'; did you mean inspect? (see kakeya --help)"},
      {"$K bench decod", 2,
       "there is no command 'bench decod'; did you mean decode? (see kakeya bench --help)"},
      {"$K eval fly", 2, "there is no command 'eval fly' (see kakeya eval --help)"},
      {"$K run --fly", 2, "unexpected argument '--fly' (see kakeya run --help)"},
      {"$K run --max_tokens 5 -p x", 2, "'--max_tokens'; did you mean --max-tokens? (see"},
      {"$K run --tempera=1 -p x", 2, "'--tempera=1'; did you mean --temperature? (see"},
      {"$K bench decode --shap x", 2, "did you mean --shape? (see kakeya bench decode --help)"},
      {"$K quantize $M", 2, "(see kakeya quantize --help)"},
      {"$K run -m $M -n 1 -n 2 -p x", 2, "--max-tokens"},
      {"$K run $M x y", 2, "expected a model and a prompt, got 3 words: put the prompt in quotes"},
      {"$K run $M -m $M x", 2, "expected one model, got --model "},
      {"$K run x -p y", 2, "--prompt and the prompt 'x' exclude each other"},
      {"$K run x -f y", 2, "--prompt-file and the prompt 'x' exclude each other"},
      {"$K run $M x --chat", 2, "--chat and the prompt 'x' exclude each other"},
      {"$K run ''", 2, "empty"},
      {"$K serve $M -m $M", 2, "twice"},
      {"$K chat $M --url http://127.0.0.1:9", 2, "--url"},
      {"$K run -m $M -p x -f /dev/null", 2, "--prompt-file"},
      {"$K completion fishy", 2, "fishy"},
      {"$K eval", 2, "perplexity"},
      {"$K eval", 2, "kakeya: expected a command (see kakeya eval --help)"},
      {"$K help fly", 2, "there is no command 'fly' (see kakeya --help)"},
      {"$K help", 0, ""},
      {"$K run -m $M -p ''", 2, "empty"},
      {"$K run -m $M -f /dev/null", 2, "empty"},
      {"$K run -m $M -f $D/none", 2, "none"},
      {"$K run -m $M -f $D", 2, "kakeya: "},
      {"$K run -m $M <&-", 2, "kakeya: "},
      {"$K run -m $M < $D", 2, "kakeya: "},
      {"$K run -m $M --chat < $D", 2, "standard input"},
      {"$K run -m $M --chat -p x", 2, "--prompt"},
      {"$K run -m $M --chat -f x", 2, "--prompt-file"},
      {"$K run -m $M --logprobs 2 -p x", 2, "--logprobs takes --json"},
      {"$K run -m $M --raw --system x -p x", 2, "--system"},
      {"$K run -m $M --raw --thinking -p x", 2, "--raw and --thinking exclude each other"},
      {"$K run -m $M --raw --no-thinking -p x", 2, "--raw and --no-thinking exclude"},
      {"$K run -m $M --raw --chat-template x -p x", 2, "--raw and --chat-template exclude"},
      {"$K run -m $D/none -p x", 2, "/none: expected a model's folder or GGUF file, got no such"},
      {"$K run google/gemma-4 x", 2, "`kakeya pull google/gemma-4`"},
      {"$K serve google/gemma-4", 2, "`kakeya pull google/gemma-4`"},
      {"$K doctor $D/none.gguf", 2, "none.gguf: No such file"},
      {"$K run -m $D/script -p x", 2, "script: expected a model's folder or a file FILE.gguf"},
      {"$K $A --json-schema none.json", 2,
       "--json-schema: expected its text, a file, or - for standard input: cannot open none.json: "
       "No such file"},
      {"$K $A --json-schema '{\"type\":3}'", 2, "type"},
      {"$K run -m /dev/null -p x", 2, "kakeya: "},
      {"head -c 4000000 /dev/zero | tr '\\0' a > $D/big; $K run -m $M -f $D/big", 2,
       "context of 8192 tokens is exceeded: the prompt has 4000000 bytes"},
      {"$K run -m $M --raw -f $D/big --memory 24MiB", 2, "context of 8192 tokens is exceeded"},
      {"$K run -m $M -n 2 -p $'\\xff\\xfe'", 0, ""},
      {"$K run -m $M -n 2 -p '   '", 0, ""},
  });
}

TEST_F(BadInputs, OfNumbers) {
  expect_rows({
      {"$K $A -n 0", 2, "--max-tokens"},  // -n is given twice
      {"$K run -m $M -p x -n 0", 0, ""},
      {"$K run -m $M -p x -n -1", 2, "-1"},
      {"$K run -m $M -p x -n 1e3", 2, "1e3"},
      {"$K run -m $M -p x -n 9223372036854775808", 2, "9223372036854775808"},
      {"$K run -m $M -p x -n 010", 2, "010"},
      {"$K run -m $M -p x -n 0x10", 2, "0x10"},
      {"$K run -m $M -p x -n ' 1'", 2, "--max-tokens"},
      {"$K $A --temperature nan", 2, "--temperature"},
      {"$K $A --temperature inf", 2, "--temperature"},
      {"$K $A --temperature -1", 2, "--temperature"},
      {"$K $A --temperature 1e39", 2, "--temperature"},
      {"$K $A --temperature 1e-38", 0, ""},
      {"$K $A --top-k -1", 2, "--top-k must"},
      {"$K $A --top-k 2147483648", 2, "--top-k"},
      {"$K $A --top-p 0", 2, "--top-p must"},
      {"$K $A --top-p nan", 2, "--top-p must"},
      {"$K $A --min-p 1.1", 2, "--min-p must"},
      {"$K $A --top-k 0 --min-p 1", 0, ""},
      {"$K $A --seed -1", 2, "--seed"},
      {"$K $A --seed 18446744073709551616", 2, "--seed"},
      {"$K $A --seed 18446744073709551615", 0, ""},
      {"$K $A --logit-bias 5", 2, "ID:BIAS"},
      {"$K $A --logit-bias 99999:1", 2, "--logit-bias names token 99999"},
      {"$K $A --logit-bias 131:nan", 2, "token 131"},
      {"$K $A --logit-bias 4294967426:100", 2, "4294967426"},
      {"$K $A --logit-bias '130: 5'", 0, ""},
      {"$K $A --logit-bias 131:inf", 0, ""},
  });
}

TEST_F(BadInputs, OfSizes) {
  expect_rows({
      {"$K $A --ctx -1", 2, "--ctx must be 1 to 32768"},
      {"$K $A --ctx 99999999", 2, "32768"},
      {"$K $A --chunk 0", 2, "--chunk"},
      {"$K $A --chunk 1", 0, ""},
      {"$K $A --threads -1", 2, "--threads"},
      {"$K $A --threads 1025", 2, "--threads"},
      {"$K $A --window 0", 2, "--window"},
      {"$K $A --evicted-full drop", 2, "--window"},
      {"$K $A --window 64 --evicted-full restore --projection none", 2, "--projection"},
      {"$K $A --window 64 --evicted-full restore --projection nothing", 2, "nothing"},
      {"$K $A --kv-full e9", 2, "--kv-full"},
      {"$K $A --kv-full int4", 2, "--kv-full: int4 was removed"},
      {"$K $A --kv-sliding int4r", 2, "expected e8, or for full layers k4v4 after `kakeya cal"},
      {"$K $A --kv-drafter d4", 2, "--kv-drafter: d4 was removed"},
      {"$K $A --kv-codes int4", 2, "--kv-codes: int4 was removed"},
      {"$K $A --memory 0", 2, "--memory"},
      {"$K $A --device-memory 0.5", 2,
       "--device-memory must be a size such as 512MiB or 4GB but is '0.5'"},
      {"$K $A --device-memory 5XB", 2, "--device-memory must be"},
      {"$K $A --device-memory 1MiB --backend guarded", 2, "memory limit of 1.0 MiB is too small"},
      {"$K $A --backend cuda/x", 2, "--backend must be cuda or cuda/NUMBER of a card"},
      {"$K $A --memory -5", 2, "--memory"},
      {"$K $A --memory nan", 2, "--memory"},
      {"$K $A --memory 1e400", 2, "--memory"},
      {"$K $A --memory '24 MiB'", 2, "--memory"},
      {"$K $A --memory 1", 2, "weights"},
      {"$K $A --memory 99TiB", 2, "99TiB"},
      {"$K $A --draft $D/none", 2, "none"},
      {"$K $A --draft $M", 2, "kakeya: "},
      {"$K $A --draft ngram+", 2, "ngram+"},
      {"$K $A --draft-length -1", 2, "--draft-length"},
      {"$K $A --draft-length 1.5", 2, "--draft-length"},
      {"$K $A --backend gpu", 2, "--backend"},
      {"$K $A --backend cpu/bogus", 2, "bogus"},
      {"$K $A --stop ''", 2, "stop string"},
      {"$K $A --regex ''", 2, "--regex: expected an expression"},
      {"$K $A --tools $D/none", 2, "cannot open"},
      {"echo '[1]' | $K $A --tools -", 2, "tool 0: expected {"},
      {"echo '[]' | $K $A --tools -", 2, "expected tools"},
      {"echo '{\"name\":\"f\"}' | $K $A --tools - --tool-choice g", 2,
       "--tool-choice: expected auto"},
      {"$K $A --tool-choice required", 2, "--tools"},
      {"echo '{}' | $K run -m $M --json-schema -", 2, "and the prompt would both be read"},
      {"echo '{}' | $K $A --json-schema - --tools -", 2, "--json-schema and --tools would both"},
      {"echo '{\"name\":\"f\"}' | $K $A --tools - --raw", 2, "exclude each other"},
      {"$K $A --stop $'\\xbf'", 2, "UTF-8"},
      {"$K bench decode -m $M --layers 0", 2, "--layers"},
      {"$K bench decode --shape gemma4-26b-a4b --layers 0", 2, "--layers"},
  });
}

// Flags of which nothing would take notice: what is measured or answered then is not what was
// asked.
TEST_F(BadInputs, OfFlagsThatNothingReads) {
  expect_rows({
      {"$K $A --window 64", 2, "--window 64 evicts nothing while all layers keep their rows"},
      {"$K $A --window 64 --evicted-full drop", 0, ""},
      {"$K $A --kv-codes int8", 2, "--kv-codes int8 is for restored rows"},
      {"$K $A --kv-codes auto --projection none", 0, ""},
      {"$K $A --window 64 --evicted-full drop --projection $M/projections/aux", 2,
       "/projections/aux is for restored rows: expected restore in --evicted-full"},
      {"echo '[2]' | $K logits -m $M --ids - -o $D/out --window 64", 2, "--window 64 evicts"},
      {"$K $A --draft none --draft-length 4", 2, "--draft-length 4 takes something that drafts"},
      {"$K $A --draft none --draft-length 0", 0, ""},
      {"$K $A --weights-cache-trust", 2, "--weights-cache-trust requires --weights-cache"},
      {"$K bench decode -m $M --weights q4_0", 2, "--weights requires --shape"},
      {"$K bench decode -m $M --shape qwen3-0.6b --layers 1", 2, "--shape and --model exclude"},
      {"$K eval perplexity -m $M --file - --texts code", 2, "--texts"},
      {"$K eval niah -m $M --file - --haystack prose", 2, "--haystack"},
      {"$K eval gsm8k -m $M --key-file x", 2, "--key-file requires --url"},
      {"$K eval niah -m $M --tls-ca x", 2, "--tls-ca requires --url"},
      {"$K eval perplexity -m $M --counted thirds", 2, "--counted"},
      {"$K eval bounded -m $M", 2, "expected a way to bound memory"},
      {"$K eval bounded -m $M --kv-full int8 --lengths 1000000 --pairs 5", 2, "--lengths"},
  });
}

// Inputs of evaluations that run for long.
TEST_F(BadInputs, OfLongRuns) {
  expect_rows({
      {"$K eval longrun -m $M --minutes 0", 2, "--minutes must"},
      {"$K eval longrun -m $M --minutes -1", 2, "--minutes must"},
      {"$K eval longrun -m $M --minutes nan", 2, "--minutes must"},
      {"$K eval longrun -m $M --minutes 1e300", 2, "--minutes must"},
      {"$K eval longrun -m $M --minutes soon", 2, "--minutes"},
      {"$K eval longrun -m $M --tokens 5", 2, "--tokens"},
      {"$K eval longrun -m $M --tokens 600 --minutes 1", 2, "--tokens"},
      {"$K eval longrun -m $M --bucket-minutes 0", 2, "--bucket-minutes must"},
      {"$K eval longrun -m $M --bucket-minutes nan", 2, "--bucket-minutes must"},
      {"$K eval longrun -m $M --bucket-minutes 0.001", 2, "at most 1000 buckets, got 60000"},
      {"$K eval longrun -m $M --sessions 0", 2, "--sessions"},
      {"$K eval longrun -m $M --set poems", 2, "poems"},
      {"$K eval longrun -m $M --prompts /dev/null", 2, "holds no prompt"},
      {"$K eval longrun -m $M --temperature nan", 2, "--temperature"},
      {"$K eval longrun -m $M --ctx 16", 2, "--ctx must be twice the longest prompt"},
      {"$K eval longrun -m $M --draft-length few", 2, "--draft-length"},
      {"$K eval longrun -m $M -o $D/none/x.json", 2, "none"},
      {"$K eval multitenant -m $M --sessions 0", 2, "--sessions"},
      {"$K eval multitenant -m $M --sessions 1025", 2, "--sessions"},
      {"$K eval multitenant -m $M --pairs 0", 2, "--pairs"},
      {"$K eval multitenant -m $M --max-tokens 0", 2, "--max-tokens"},
      {"$K eval multitenant -m $M --temperature 0", 2, "--temperature"},
      {"$K eval multitenant -m $M --data $D", 2, "humaneval.jsonl"},
      {"$K eval multitenant -m $M --draft $D/none", 2, "none"},
      {"$K eval multitenant -m $M -o $D/none/x.json", 2, "none"},
  });
}

TEST_F(BadInputs, OfProblems) {
  expect_rows({
      {"$K eval humaneval -m $M", 2, "--run-code"},
      {"$K eval humaneval -m $M --run-code --python $D/none", 2, "none: expected a Python"},
      {"$K eval humaneval -m $M --run-code --python /bin/true", 2, "expected a Python"},
      {"$K eval humaneval -m $M --run-code --seconds 0", 2, "--seconds must"},
      {"$K eval humaneval -m $M --run-code --seconds nan", 2, "--seconds must"},
      {"$K eval humaneval -m $M --run-code --data /dev/null", 2, "holds no problem"},
      {"$K eval gsm8k -m $M --run-code", 2, "--run-code"},
      {"$K eval gsm8k -m $M --data $D/none", 2, "none"},
      {"$K eval gsm8k -m $M --data /dev/null", 2, "holds no problem"},
      {"echo '{}' | $K eval gsm8k -m $M --data -", 2, "standard input:1: question"},
      {"echo '[' | $K eval gsm8k -m $M --data -", 2, "standard input:1: "},
      {"$K eval gsm8k -m $M --limit 0", 2, "--limit"},
      {"$K eval gsm8k -m $M --max-tokens 0", 2, "--max-tokens"},
      {"$K eval gsm8k -m $M --ctx 64 --max-tokens 40", 2, "gsm8k/1: expected a prompt"},
      {"$K eval gsm8k -m $M --draft-length few", 2, "--draft-length"},
      {"$K eval gsm8k -m $M -o $D/none/x.json", 2, "none"},
      {"$K eval gsm8k -m $M --limit 1 --resume $D", 2, "expected a journal"},
  });
}

TEST_F(BadInputs, OfFiles) {
  const auto ids = [](const std::string& text) {
    return Row{
        "printf '%s' '" + text + "' > $D/ids; $K logits -m $M --ids $D/ids -o $D/out.safetensors",
        2, "kakeya: "};
  };
  expect_rows({ids(""), ids("[]"), ids("[1.5]"), ids("[-1]"), ids("[4096]"), ids("[[1]]"),
               ids("[\"a\"]"), ids("{}"), ids("[1e300]"), ids(std::string(100'000, '[')),
               ids("[1,2"), ids("null"), ids("[10000000000000000000]")});
  expect_rows({
      {"$K inspect /dev/zero", 2, "/dev/zero"},
      {"$K inspect $K", 2, "kakeya: "},
      {"mkdir -p $D/empty; $K inspect $D/empty", 2, "empty"},
      {"$K $A --session /dev/null", 2, "/dev/null"},
      {"$K $A --session $D", 2, "kakeya: "},
      {": > $D/talk; $K $A --session $D/talk", 2, "talk"},
      {"echo garbage > $D/talk; $K $A --session $D/talk", 2, "talk"},
      {"mkfifo $D/fifo; $K $A --session $D/fifo", 2, "fifo"},
      {"$K $A --session $D/none/talk", 2, "none"},
      {"echo '[2, 3]' > $D/ids", 0, ""},
      {"$K logits -m $M --ids $D/ids -o /tmp", 2, "/tmp"},
      {"$K logits -m $M --ids $D/ids -o $D/none/x", 2, "none"},
      {"$K $A --weights-cache /dev/null", 0, "packed weights are not kept"},
      {"$K convert $M $M", 2, "kakeya: "},
      {"$K convert $M ''", 2, "kakeya: "},
      {"$K convert $M $D/none/x.gguf", 2, "none"},
      {"mkdir -p $D/full; echo x > $D/full/thesis.txt; $K quantize $M $D/full --bits 4", 2, "full"},
      {"mkdir -p $D/model2; cp $M/config.json $D/model2; echo x > $D/model2/thesis.txt; $K "
       "quantize "
       "$M $D/model2 --bits 4 --force",
       2, "thesis.txt"},
      {"[ -s $D/model2/thesis.txt ]", 0, ""},
  });
}

}  // namespace
}  // namespace kakeya::test
